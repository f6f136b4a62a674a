import { fstatSync } from 'node:fs';

/** The inode number of a descriptor of this process; undefined if another thread has closed it. */
export function inodeOf(fd: number): number | undefined {
  try {
    return fstatSync(fd).ino;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EBADF') return undefined;
    throw error;
  }
}
