"""The colours of everything that is drawn: readable for people who do not see all of them (Okabe and Ito 2008)."""

from __future__ import annotations

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442")
