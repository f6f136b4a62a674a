/** Carries events from a worker to the main thread. */
import { KpngError, type ErrorCode } from '../../errors.ts';
import type { TypedChannel } from '../../util/channel.ts';
import * as events from '../events.ts';

/** The channels of the data path, in an order that both threads agree on. */
export const CHANNELS: readonly TypedChannel<object>[] = Object.values(events).map(
  (channel) => channel as unknown as TypedChannel<object>,
);

/** An event: the number of its channel, and its message. */
export type CarriedEvent = readonly [channel: number, message: object];

/** An error as plain data: cloning would lose its class and its code. */
interface PlainError {
  readonly name: string;
  readonly message: string;
  readonly stack: string | undefined;
  readonly code: string | undefined;
  readonly servicePort: string | undefined;
  readonly cause: PlainError | undefined;
}

export function encodeError(error: unknown): PlainError {
  if (!(error instanceof Error)) return { ...encodeError(new Error(String(error))) };
  return {
    name: error.name,
    message: error.message,
    stack: error.stack,
    code: 'code' in error ? String(error.code) : undefined,
    servicePort: error instanceof KpngError ? error.servicePort : undefined,
    cause: error.cause === undefined ? undefined : encodeError(error.cause),
  };
}

export function decodeError(plain: PlainError): Error {
  const { name, message, stack, code, servicePort } = plain;
  const cause = plain.cause === undefined ? undefined : decodeError(plain.cause);
  let error: Error;
  if (name === 'KpngError') {
    const options = { cause, ...(servicePort !== undefined && { servicePort }) };
    error = new KpngError(code as ErrorCode, message, options);
  } else {
    error = new Error(message, cause === undefined ? undefined : { cause });
    if (code !== undefined) Object.assign(error, { code });
    if (name !== 'Error') Object.assign(error, { name });
  }
  if (stack !== undefined) error.stack = stack;
  return error;
}

/** A message in a form that survives `postMessage`. */
export function encodeMessage(message: object): object {
  return 'error' in message ? { ...message, error: encodeError(message.error) } : message;
}

export function decodeMessage(message: object): object {
  return 'error' in message
    ? { ...message, error: decodeError(message.error as PlainError) }
    : message;
}
