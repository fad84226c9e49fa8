"""The shared vocabulary of Evenhand: plain values that every layer uses, and the one definition of fit."""
