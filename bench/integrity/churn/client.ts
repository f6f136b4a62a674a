/** One connection to a service of greeters. */
import { connect } from 'node:net';

/** `asks`: sends its request at once; `waits`: sends nothing before it has been greeted. */
export type Manner = 'asks' | 'waits';

/** How a connection went. */
export interface Visit {
  /** The address that the client came from; no other connection has it. */
  readonly from: string;
  readonly manner: Manner;
  /** Who greeted it. */
  readonly greetedBy: string | undefined;
  readonly served: boolean;
  /** Why not; undefined: it was closed in order. */
  readonly error: string | undefined;
  /** When it ended, as `Date.now()`. */
  readonly endedAt: number;
}

const REQUEST = 'please\n';
/** An answer that takes longer has failed. Milliseconds. */
const PATIENCE = 5000;

/** Visits a greeter by way of a service. Never rejects. */
export function visit(
  target: { readonly host: string; readonly port: number },
  from: string,
  manner: Manner,
  answer: string,
): Promise<Visit> {
  const { promise, resolve } = Promise.withResolvers<Visit>();
  let text = '';
  let error: string | undefined;
  const socket = connect({ ...target, localAddress: from, noDelay: true, timeout: PATIENCE });
  if (manner === 'asks') socket.write(REQUEST);
  socket.setEncoding('latin1');
  socket.on('data', (chunk: string) => {
    const greeted = text.includes('\n');
    text += chunk;
    if (manner === 'waits' && !greeted && text.includes('\n')) socket.write(REQUEST);
  });
  socket.on('timeout', () => socket.destroy(new Error('no answer in time')));
  socket.on('error', ({ message }) => (error = message));
  socket.on('close', () => {
    const [greeting, last] = text.split('\n');
    const greetedBy = text.includes('\n') ? greeting : undefined;
    const served = last === answer;
    resolve({ from, manner, greetedBy, served, error, endedAt: Date.now() });
  });
  return promise;
}
