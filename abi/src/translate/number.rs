/// Functions from an enum's numbers in C, refused by rules, and back.
macro_rules! numbers {
    ($from:ident, $to:ident: $type:ident { $($number:ident $variant:ident,)* }
     $($other:pat => $rule:ident,)+) => {
        pub(crate) const fn $from(number: std::ffi::c_uint) -> $crate::errno::Result<$type> {
            match number {
                $($number => Ok($type::$variant),)*
                $($other => Err($crate::errno::Errno::of($crate::rule::Rule::$rule)),)+
            }
        }

        pub(crate) const fn $to(value: $type) -> std::ffi::c_uint {
            match value {
                $($type::$variant => $number,)*
            }
        }
    };
}
pub(crate) use numbers;
