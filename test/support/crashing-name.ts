/** Under which name a test instructs its workers. */
export const ORDER = 'kpng-userspace test order';

/** 0: live; 1: die at the next turn of the loop; 2: fail a probe; 3: hang at the next turn. */
export type Order = 0 | 1 | 2 | 3;
