/** Under which name a test gives its time to worker threads. */
export const TIME = 'kpng-userspace test time';
