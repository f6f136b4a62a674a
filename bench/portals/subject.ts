/** What is measured: this project with one of its portals, or another proxy. */

/** A service comes, a service goes, a service gets a second endpoint. */
export const CHANGE_KINDS = ['added', 'endpoint', 'removed'] as const;
export type ChangeKind = (typeof CHANGE_KINDS)[number];

/** What came of the first state. */
export interface ColdStart {
  /** From the first state until the last rule and listener. Milliseconds. */
  readonly ms: number;
  /** Service ports that clients can use now. */
  readonly served: number;
  /** Programs that were run. */
  readonly processes: number;
}

/** When something was, on the system's monotonic clock, which is the same in all processes. Milliseconds. */
export type Moment = number;

export function now(): Moment {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** A proxy in a namespace, about to be given its first state. */
export interface Subject {
  /** Column or row in the report. */
  readonly name: string;
  /** Programs that it has run so far. */
  readonly processes: () => Promise<number>;
  /** The process whose CPU and memory count. */
  readonly pid: number;
  /** Gives it so many services, once. */
  start(services: number): Promise<ColdStart>;
  /** Hands over a change of the n-th service. Resolves with when that was. */
  change(kind: ChangeKind, n: number): Promise<Moment>;
  /**
   * Resolves when nothing is under way any more that changes of services have caused, with when that was the
   * case. `undefined`: the last change was one that the proxy does not report.
   */
  settled(): Promise<Moment | undefined>;
  close(): Promise<void>;
}
