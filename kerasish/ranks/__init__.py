"""The processes that train together (ranks), how they exchange numbers, and how a batch is cut.

A single process is a group of one, and nothing here costs anything. `kerasish.distribution`
replaces the group; `mpi` is the one implementation for several processes.
"""

from kerasish.ranks.group import Alone as Alone
from kerasish.ranks.group import Group as Group
from kerasish.ranks.group import NativeCalls as NativeCalls
from kerasish.ranks.group import Progress as Progress
from kerasish.ranks.group import current_group as current_group
from kerasish.ranks.group import set_group as set_group
from kerasish.ranks.group import tree_sum as tree_sum
from kerasish.ranks.sharding import Sharding as Sharding
from kerasish.ranks.sharding import bounds as bounds
from kerasish.ranks.sharding import current_sharding as current_sharding
from kerasish.ranks.sharding import divides_slots as divides_slots
from kerasish.ranks.sharding import from_writer as from_writer
from kerasish.ranks.sharding import set_sharding as set_sharding
from kerasish.ranks.sharding import writes_here as writes_here
