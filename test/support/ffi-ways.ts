/** How threads end that make system calls. */
export const WAYS_TO_END = ['return', 'throw', 'exit'] as const;
