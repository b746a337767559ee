"""Array functions composed of the basic ops: shapes, sorting, scatter, statistics, einsum."""
