import { KpngError, type ErrorCode } from '../errors.ts';

/**
 * Why a request or a watch came to nothing; the value of the label `cause` of the metrics.
 *
 * - `unreachable`: no answer: refused, reset, name unknown, time is up
 * - `cut`: the connection was lost in the middle of an answer
 * - `tls`: the server's certificate is not one to trust
 * - `credentials`: there are none, such as when the program that fetches them fails
 * - `unauthorized`, `forbidden`: 401, 403
 * - `gone`: the version is too old (410), or newer than what the server has
 * - `throttled`: 429
 * - `server`: any other status that is no success
 * - `silent`: nothing came any more, though the connection stands
 * - `malformed`: what came is not what the API sends
 * - `too-large`: more pages, bytes or objects than are accepted
 * - `short`: a watch that the server ended again soon
 */
export type Cause =
  | 'unreachable'
  | 'cut'
  | 'tls'
  | 'credentials'
  | 'unauthorized'
  | 'forbidden'
  | 'gone'
  | 'throttled'
  | 'server'
  | 'silent'
  | 'malformed'
  | 'too-large'
  | 'short';

const CODES: Readonly<Partial<Record<Cause, ErrorCode>>> = {
  credentials: 'KPNG_KUBE_UNAUTHORIZED',
  unauthorized: 'KPNG_KUBE_UNAUTHORIZED',
  forbidden: 'KPNG_KUBE_FORBIDDEN',
  'too-large': 'KPNG_STATE_TOO_LARGE',
};

/** A failure that is retried. Its code is that of the cause. */
export class KubeFailure extends KpngError {
  readonly kind: Cause;
  /** Delay that the server requests. Milliseconds. */
  readonly retryAfterMs: number | undefined;

  constructor(
    kind: Cause,
    message: string,
    options: { cause?: unknown; retryAfterMs?: number | undefined } = {},
  ) {
    super(CODES[kind] ?? 'KPNG_SOURCE_LOST', message, { cause: options.cause });
    this.kind = kind;
    this.retryAfterMs = options.retryAfterMs;
  }

  /** Whether there was no response at all, as there would be for any other request. */
  get isOutage(): boolean {
    return this.kind === 'unreachable' || this.kind === 'tls' || this.kind === 'credentials';
  }
}
