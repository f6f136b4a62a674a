/**
 * What has come of an endpoint since it joined its service port. Times are milliseconds of the balancer's clock. Whether it
 * fails is decided by the last attempt alone: time without clients proves nothing.
 */
export class EndpointRecord {
  /** TCP connections that it took, and UDP sessions that were opened to it. */
  connections = 0;
  /** Of those that have ended: from clients to the endpoint. */
  bytesIn = 0;
  bytesOut = 0;
  /** Failed attempts to connect. */
  errors = 0;
  /** Smoothed over the last eight connections or so; undefined: there was none. UDP has no connect time. */
  connectMs: number | undefined = undefined;
  /** When an attempt last succeeded; UDP: when the first answer of a session last came. */
  connectedAt: number | undefined = undefined;
  /** The first failure since the last success; undefined: the last attempt succeeded, or there was none. */
  failingSince: number | undefined = undefined;
  lastError: { readonly cause: string; readonly at: number } | undefined = undefined;

  connected(at: number, connectMs: number | undefined): void {
    this.connectedAt = at;
    this.failingSince = undefined;
    if (connectMs === undefined) return;
    const before = this.connectMs;
    this.connectMs = before === undefined ? connectMs : before + (connectMs - before) / 8;
  }

  failed(at: number, cause: string): void {
    this.errors += 1;
    this.failingSince ??= at;
    this.lastError = { cause, at };
  }
}
