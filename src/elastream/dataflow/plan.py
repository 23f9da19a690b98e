"""A plan says how many instances each operator has; the difference of two plans is what an action changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from elastream.dataflow.graph import check_count
from elastream.errors import InvalidInput, nearest, shown


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One operator's part of a rescaling action."""

    operator: str
    before: int
    after: int

    def __str__(self) -> str:
        return f"{self.operator} {self.before} → {self.after}"


@dataclass(frozen=True, eq=False)  # equal to any mapping with the same items
class Plan(Mapping[str, int]):
    """The parallelism of every operator of a dataflow: a mapping that does not change."""

    parallelism: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, instances in self.parallelism.items():
            check_count(name, "parallelism", instances)

    def __getitem__(self, name: str) -> int:
        return self.parallelism[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parallelism)

    def __len__(self) -> int:
        return len(self.parallelism)

    def __hash__(self) -> int:
        return hash(frozenset(self.parallelism.items()))

    def __str__(self) -> str:
        return ", ".join(f"{name} {instances}" for name, instances in self.parallelism.items())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """In files a plan is a plain object of numbers."""
        return core_schema.no_info_after_validator_function(
            cls,
            core_schema.dict_schema(core_schema.str_schema(), core_schema.int_schema()),
            serialization=core_schema.plain_serializer_function_ser_schema(dict),
        )

    @property
    def total(self) -> int:
        return sum(self.parallelism.values())

    def with_changes(self, wanted: Mapping[str, int]) -> Plan:
        """This plan with some operators changed; an operator that it does not have is refused."""
        unknown = [name for name in wanted if name not in self.parallelism]
        if unknown:
            raise InvalidInput(
                f"the plan has no operator {shown(unknown[0])}{nearest(unknown[0], self.parallelism)}"
            )
        return Plan({**self.parallelism, **wanted})

    def changes_to(self, other: Mapping[str, int]) -> tuple[Change, ...]:
        """What has to change in this plan to become the other; operators missing from one are left alone."""
        return tuple(
            Change(operator=name, before=before, after=other[name])
            for name, before in self.parallelism.items()
            if name in other and other[name] != before
        )
