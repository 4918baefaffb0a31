"""Suite of other people's programs: outcomes, and figures beside their TCP modes."""
