/**
 * The history of an endpoint since it joined its service port. Times are milliseconds of the balancer's clock. Only
 * the last attempt decides whether it fails: time without clients proves nothing.
 */
export class EndpointRecord {
  /** TCP connections accepted by it, and UDP sessions opened to it. */
  connections = 0;
  /** Of ended ones: from clients to the endpoint. */
  bytesIn = 0;
  bytesOut = 0;
  /** Failed attempts to connect. */
  errors = 0;
  /** Smoothed over the last eight connections or so; undefined before the first. UDP has no connect time. */
  connectMs: number | undefined = undefined;
  /** Time of the last successful attempt; UDP: of the last session's first answer. */
  connectedAt: number | undefined = undefined;
  /** Time of the first failure since the last success; undefined: the last attempt succeeded, or there was none. */
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
