import { getSystemErrorName } from 'node:util';

/** The name of an error number, such as ECONNREFUSED. */
export function errnoName(errno: number): string {
  return getSystemErrorName(-errno);
}

/** An error as Node's own socket functions make them: `code` is the name of the error number. */
export function systemError(errno: number, call: string): NodeJS.ErrnoException {
  const code = errnoName(errno);
  return Object.assign(new Error(`${call} ${code}`), { code, errno: -errno, syscall: call });
}
