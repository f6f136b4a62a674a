import { KpngError, type ErrorCode } from '../errors.ts';

/** Why a request or a watch failed; the label `cause` of the metrics. */
export type Cause =
  | 'unreachable' // no response: refused, reset, name not resolved, timed out
  | 'cut' // the connection was lost in the middle of a response
  | 'tls' // the server's certificate is not trusted
  | 'credentials' // none available, such as when the program that fetches them fails
  | 'unauthorized' // 401
  | 'forbidden' // 403
  | 'gone' // the version is too old (410), or newer than the server's
  | 'throttled' // 429
  | 'server' // any other error status
  | 'silent' // no more data, though the connection is open
  | 'malformed' // invalid data
  | 'too-large' // more pages, bytes or objects than accepted
  | 'short'; // a watch that the server soon ended

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

  /** Watches regularly end in these ways, and are restarted. */
  get isRoutine(): boolean {
    return this.kind === 'gone' || this.kind === 'short';
  }

  /** Whether there was no response at all, which would affect every other request as well. */
  get isOutage(): boolean {
    return this.kind === 'unreachable' || this.kind === 'tls' || this.kind === 'credentials';
  }
}
