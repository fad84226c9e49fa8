"""The words of Evenhand: plain values that every layer shares, and the one definition of fit."""
