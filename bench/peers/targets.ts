/** Where a load finds each of the five services of the backend. */
export interface Target {
  readonly host: string;
  readonly port: number;
}

export interface Targets {
  /** Sends without end. */
  readonly source: Target;
  /** Takes what it gets and answers its length, in 8 bytes, at the end. */
  readonly sink: Target;
  /** Answers each request, on a connection that stays. */
  readonly requests: Target;
  /** Answers one request and closes. */
  readonly connections: Target;
  /** UDP: sends each datagram back. */
  readonly echo: Target;
}

export type TargetName = keyof Targets;

/** All names, TCP first. */
export const TARGET_NAMES = ['source', 'sink', 'requests', 'connections', 'echo'] as const;

/** Sizes of the small messages. Bytes. */
export const REQUEST_BYTES = 128;
export const RESPONSE_BYTES = 256;
export const DATAGRAM_BYTES = 64;
