import type { ListenSpec } from '../spec.ts';

/** Throws for a transparent listener: Node has no way to set IP_TRANSPARENT. */
export function refuseTransparent({ transparent }: ListenSpec): void {
  if (transparent === undefined) return;
  const message = 'transparent sockets need --engine linux';
  throw Object.assign(new Error(message), { code: 'EOPNOTSUPP' });
}
