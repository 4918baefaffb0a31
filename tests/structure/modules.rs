//! A crate's modules from its sources: names defined and paths used.
//!
//! Paths resolve through imports and re-exports to the defining file. Method calls are invisible.
//! Items under `#[cfg(test)]` are skipped.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path as FilePath,
};

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, ImplItemFn, Item, ItemMod, ItemUse, Macro, UseTree, Visibility,
    visit::{self, Visit},
};

/// Reads a file by its path below `src`; `None` if missing.
pub(crate) type Source<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Per file, the files it uses and the names it takes.
pub(crate) type Edges = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

const LONGEST_CHAIN: usize = 16;

pub(crate) struct Modules(Vec<Module>);

struct Module {
    file: String,
    parent: usize,
    /// An item and a module may share a name.
    names: BTreeMap<String, Vec<Name>>,
    globs: Vec<Vec<String>>,
    uses: Vec<Use>,
}

#[derive(Clone)]
enum Name {
    Item,
    Module(usize),
    Import(Vec<String>),
}

struct Use {
    path: Vec<String>,
    reexport: bool,
}

enum Target {
    Module(usize),
    Item { module: usize, name: String },
}

impl Modules {
    /// With this root: `lib.rs` or `main.rs`.
    pub(crate) fn read(source: Source<'_>, root: &str) -> Modules {
        let mut modules = Modules(Vec::new());
        let text = source(root).unwrap_or_else(|| panic!("no {root}"));
        modules.add(source, root, "", 0, &parse(root, &text).items);
        modules
    }

    pub(crate) fn files(&self) -> BTreeSet<&str> {
        self.0.iter().map(|module| module.file.as_str()).collect()
    }

    /// A parent may list its children's names with `pub use` without depending on them.
    pub(crate) fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (index, module) in self.0.iter().enumerate() {
            for used in &module.uses {
                let Some(Target::Item { module: target, name }) =
                    self.resolve(index, &used.path, 0)
                else {
                    continue;
                };
                let file = &self.0[target].file;
                if *file == module.file || used.reexport && self.is_below(target, index) {
                    continue;
                }
                let names = edges.entry(module.file.clone()).or_default();
                names.entry(file.clone()).or_default().insert(name);
            }
        }
        edges
    }

    /// Adds a module and its children, whose files are in `folder`.
    fn add(
        &mut self,
        source: Source<'_>,
        file: &str,
        folder: &str,
        parent: usize,
        items: &[Item],
    ) -> usize {
        let index = self.0.len();
        self.0.push(Module {
            file: file.to_string(),
            parent,
            names: BTreeMap::new(),
            globs: Vec::new(),
            uses: Vec::new(),
        });
        let mut reader = Reader { module: &mut self.0[index], children: Vec::new() };
        for item in items {
            reader.visit_item(item);
            reader.define(item);
        }
        for child in reader.children {
            let name = child.ident.to_string();
            let below = format!("{folder}{name}/");
            let child = match &child.content {
                Some((_, items)) => self.add(source, file, &below, index, items),
                None => {
                    let (file, text) = [format!("{folder}{name}.rs"), format!("{below}mod.rs")]
                        .into_iter()
                        .find_map(|file| source(&file).map(|text| (file, text)))
                        .unwrap_or_else(|| panic!("{file} declares {name}, which has no file"));
                    self.add(source, &file, &below, index, &parse(&file, &text).items)
                }
            };
            self.0[index].names.entry(name).or_default().push(Name::Module(child));
        }
        index
    }

    fn is_below(&self, mut module: usize, ancestor: usize) -> bool {
        while module != ancestor && module != 0 {
            module = self.0[module].parent;
        }
        module == ancestor
    }

    fn resolve(&self, from: usize, path: &[String], depth: usize) -> Option<Target> {
        if depth > LONGEST_CHAIN {
            return None;
        }
        let mut at = from;
        for (position, segment) in path.iter().enumerate() {
            let last = position + 1 == path.len();
            match segment.as_str() {
                "crate" => at = 0,
                "self" => {}
                "super" => at = self.0[at].parent,
                name => match self.lookup(at, name, last, depth) {
                    Some(Target::Module(module)) => at = module,
                    Some(item) => return Some(item),
                    None if position == 0 => return None,
                    // defined by a macro
                    None => return Some(Target::Item { module: at, name: name.to_string() }),
                },
            }
        }
        Some(Target::Module(at))
    }

    fn lookup(&self, module: usize, name: &str, last: bool, depth: usize) -> Option<Target> {
        let mut named = self.0[module].names.get(name).cloned().unwrap_or_default();
        named.sort_by_key(|named| match named {
            Name::Item => !last,
            Name::Module(_) => last,
            Name::Import(_) => false,
        });
        let mut found = named.iter().filter_map(|named| match named {
            Name::Item => Some(Target::Item { module, name: name.to_string() }),
            Name::Module(index) => Some(Target::Module(*index)),
            Name::Import(path) => self.resolve(module, path, depth + 1),
        });
        found.next().or_else(|| {
            self.0[module].globs.iter().find_map(|glob| {
                if depth > LONGEST_CHAIN {
                    return None;
                }
                match self.resolve(module, glob, depth + 1)? {
                    Target::Module(index) => self.lookup(index, name, last, depth + 1),
                    Target::Item { .. } => None,
                }
            })
        })
    }
}

/// Of one module, without children.
struct Reader<'a, 'ast> {
    module: &'a mut Module,
    children: Vec<&'ast ItemMod>,
}

impl Reader<'_, '_> {
    fn define(&mut self, item: &Item) {
        let name = match item {
            Item::Const(item) => &item.ident,
            Item::Enum(item) => &item.ident,
            Item::Fn(item) => &item.sig.ident,
            Item::Static(item) => &item.ident,
            Item::Struct(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Union(item) => &item.ident,
            Item::Macro(item) if item.ident.is_some() => item.ident.as_ref().unwrap(),
            _ => return,
        };
        self.module.names.entry(name.to_string()).or_default().push(Name::Item);
    }

    fn import(&mut self, tree: &UseTree, mut path: Vec<String>, reexport: bool) {
        let (segment, name) = match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                return self.import(&tree.tree, path, reexport);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|t| self.import(t, path.clone(), reexport));
            }
            UseTree::Glob(_) => return self.module.globs.push(path),
            UseTree::Name(tree) => (&tree.ident, &tree.ident),
            UseTree::Rename(tree) => (&tree.ident, &tree.rename),
        };
        let mut name = name.to_string();
        if segment == "self" {
            name = if name == "self" { path.last().cloned().unwrap_or(name) } else { name };
        } else {
            path.push(segment.to_string());
        }
        // `use crate_name` or a self import would be circular
        if path.len() > 1 || path[0] != name {
            self.module.names.entry(name).or_default().push(Name::Import(path.clone()));
        }
        self.module.uses.push(Use { path, reexport });
    }

    /// Paths in a macro call, which has tokens only.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.used(std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.used(std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.used(path);
    }

    fn used(&mut self, path: Vec<String>) {
        if !path.is_empty() {
            self.module.uses.push(Use { path, reexport: false });
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_, 'ast> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        self.children.push(module);
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if item.leading_colon.is_none() {
            let reexport = !matches!(item.vis, Visibility::Inherited);
            self.import(&item.tree, Vec::new(), reexport);
        }
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    /// Paths in a macro resolve at its call; only `$crate` leads from here.
    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        if !item.mac.path.is_ident("macro_rules") {
            return visit::visit_item_macro(self, item);
        }
        let already = self.module.uses.len();
        self.tokens(item.mac.tokens.clone());
        let uses = self.module.uses.split_off(already);
        self.module.uses.extend(uses.into_iter().filter(|used| used.path[0] == "crate"));
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        visit::visit_macro(self, call);
        self.tokens(call.tokens.clone());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.used(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }
}

fn parse(file: &str, text: &str) -> syn::File {
    syn::parse_file(text).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// True for `#[cfg(test)]` and `#[cfg(all(test, …))]`.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    fn requires_test(tokens: TokenStream) -> bool {
        let mut negated = false;
        tokens.into_iter().any(|token| match token {
            TokenTree::Ident(word) => {
                negated = word == "not" || word == "any";
                word == "test"
            }
            TokenTree::Group(group) => !negated && requires_test(group.stream()),
            _ => false,
        })
    }
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        attribute.meta.require_list().is_ok_and(|list| requires_test(list.tokens.clone()))
    })
}

pub(crate) fn in_folder(folder: &FilePath) -> impl Fn(&str) -> Option<String> + '_ {
    |file| std::fs::read_to_string(folder.join(file)).ok()
}
