import type { IncomingMessage } from 'node:http';
import type { Clock } from '../util/clock.ts';
import { KubeFailure } from './failure.ts';

/** A pause in a body was too long. */
class SilenceError extends Error {
  override readonly name = 'SilenceError';
}

/**
 * The pieces of a body as they come. Throws a SilenceError when none comes for `silenceMs()`, which is
 * asked for each piece, and whatever the connection ends with.
 */
export async function* pieces(
  body: IncomingMessage,
  silenceMs: () => number,
  clock: Clock,
): AsyncGenerator<Buffer, void, undefined> {
  const watch = () => {
    const ms = silenceMs();
    return clock.setTimer(ms, () => {
      body.destroy(new SilenceError(`nothing came for ${Math.round(ms / 1000)} s`));
    });
  };
  let timer = watch();
  try {
    for await (const piece of body) {
      timer.cancel();
      yield piece as Buffer;
      timer = watch();
    }
  } finally {
    timer.cancel();
    body.destroy();
  }
}

/** Why a body came to an end before it was complete. */
export function bodyFailure(what: string, error: unknown): KubeFailure {
  if (error instanceof SilenceError) {
    return new KubeFailure('silent', `${what}: ${error.message}`, { cause: error });
  }
  // Node says no more than `aborted`, whatever it was.
  return new KubeFailure('cut', `${what}: the connection was lost`, { cause: error });
}

/** A whole body; undefined when it is larger than the limit. */
export async function readBody(
  body: IncomingMessage,
  maxBytes: number,
  silenceMs: number,
  clock: Clock,
): Promise<string | undefined> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const piece of pieces(body, () => silenceMs, clock)) {
    bytes += piece.length;
    if (bytes > maxBytes) return undefined;
    parts.push(piece);
  }
  return Buffer.concat(parts).toString('utf8');
}
