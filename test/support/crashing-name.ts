/** Under which name a test tells its workers what to do. */
export const ORDER = 'kpng-userspace test order';

/** 0: live; 1: die at the next turn of the loop; 2: fail a probe. */
export type Order = 0 | 1 | 2;
