"""Result sets of Stowage: checked, tabled, drawn and published."""
