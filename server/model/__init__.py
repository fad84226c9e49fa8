"""The values that every layer of Evenhand uses, and the one definition of fit."""
