"""Plain data and declarations that all other packages use."""
