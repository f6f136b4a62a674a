import type { KpngError } from '../errors.ts';
import { type PortalProblem, portalText } from '../portal/portal.ts';
import type { ListenSpec, Protocol } from '../proxysocket/spec.ts';
import type { Clock, Timer } from '../util/clock.ts';
import { problemChanged, type Problem } from './events.ts';
import { ListenWatch } from './listen-watch.ts';
import { type ListenFailure, listenProblem, portalProblem } from './report.ts';

type Publish = (kind: 'appeared' | 'changed' | 'gone', problem: Problem) => void;

interface PublishedProblem {
  problem: Problem;
  /** The count that was reported last. */
  reported: number;
}

/** The current problems. Publishes each when it appears, doubles, halves or ends. */
export class ProblemTable {
  readonly #published = new Map<string, PublishedProblem>();
  readonly #publish: Publish;

  constructor(publish: Publish) {
    this.#publish = publish;
  }

  /** Every current problem. */
  list(): Problem[] {
    return [...this.#published.values()].map(({ problem }) => problem);
  }

  /** Sets the problem of a key; undefined or a count of 0: none. */
  note(key: string, problem: Problem | undefined): void {
    const noted = this.#published.get(key);
    if (problem === undefined || problem.count === 0) {
      if (noted === undefined) return;
      this.#published.delete(key);
      this.#publish('gone', noted.problem);
      return;
    }
    if (noted === undefined) {
      this.#published.set(key, { problem, reported: problem.count });
      this.#publish('appeared', problem);
      return;
    }
    noted.problem = problem;
    if (problem.count < noted.reported * 2 && problem.count * 2 > noted.reported) return;
    noted.reported = problem.count;
    this.#publish('changed', problem);
  }
}

/** Listeners recover one by one; their changes are published together after this long. Milliseconds. */
const PUBLISH_DELAY_MS = 1000;

export interface ProblemsOptions {
  readonly clock: Clock;
  readonly platform: NodeJS.Platform;
  /** Whether a service port belongs to this proxier. */
  readonly isOurs: (servicePort: string) => boolean;
  /** Describes the process that holds an address; undefined: unknown. Must not reject. */
  readonly holderOf?: HolderOf | undefined;
}

export type HolderOf = (place: {
  readonly protocol: Protocol;
  readonly address: string;
  readonly port: number;
}) => Promise<string | undefined>;

/** The process that holds a listener's address, looked up once. */
interface KnownHolder {
  readonly place: string;
  readonly text: string | undefined;
}

/** Collects the problems of services, portals and listeners, and publishes their changes. */
export class Problems {
  readonly #clock: Clock;
  readonly #platform: NodeJS.Platform;
  readonly #table = new ProblemTable((kind, problem) => {
    if (problemChanged.hasSubscribers) problemChanged.publish({ kind, problem });
  });
  readonly #watch: ListenWatch;
  readonly #holderOf: HolderOf | undefined;
  /** By cause, for the listener named in its problem. */
  readonly #holders = new Map<string, KnownHolder>();
  /** Causes of listener failures with unpublished changes. */
  readonly #news = new Set<string>();
  #portalCodes: ReadonlySet<string> = new Set();
  #timer: Timer | undefined;
  #heldBack = false;

  constructor(options: ProblemsOptions) {
    this.#clock = options.clock;
    this.#platform = options.platform;
    this.#holderOf = options.holderOf;
    this.#watch = new ListenWatch(options.isOurs, (cause) => this.#schedule(cause));
  }

  list(): Problem[] {
    return this.#table.list();
  }

  /** Replaces the problems of one service. */
  ofService(before: readonly KpngError[], now: readonly KpngError[]): void {
    if (before.length === 0 && now.length === 0) return;
    const keys = new Set(now.map(serviceKey));
    for (const error of before) {
      if (!keys.has(serviceKey(error))) this.#table.note(serviceKey(error), undefined);
    }
    for (const error of now) {
      const { code, message, servicePort } = error;
      this.#table.note(serviceKey(error), { code, message, servicePort, count: 1 });
    }
  }

  /** Replaces the problems of all portals. */
  ofPortals(problems: readonly PortalProblem[]): void {
    const groups = Map.groupBy(problems, ({ code }) => code);
    for (const code of this.#portalCodes) {
      if (!groups.has(code)) this.#table.note(`portal ${code}`, undefined);
    }
    for (const [code, group] of groups) this.#table.note(`portal ${code}`, portalProblem(group));
    this.#portalCodes = new Set(groups.keys());
  }

  /** Drops failures of listeners that a service port no longer needs. */
  keepListeners(servicePort: string, listen: readonly ListenSpec[]): void {
    this.#watch.keepOnly(servicePort, listen);
  }

  /** Runs something that opens listeners, and reports failures when it is done. */
  async holdBack<T>(run: () => Promise<T>): Promise<T> {
    this.#heldBack = true;
    try {
      return await run();
    } finally {
      this.#heldBack = false;
      await this.#publish();
    }
  }

  /** Stops following the data path. Idempotent. */
  close(): void {
    this.#watch.close();
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #schedule(cause: string): void {
    this.#news.add(cause);
    if (!this.#heldBack)
      this.#timer ??= this.#clock.setTimer(PUBLISH_DELAY_MS, () => void this.#publish());
  }

  /** Resolves when the holders of the failed addresses are known. */
  async #publish(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = undefined;
    const causes = [...this.#news];
    this.#news.clear();
    const unknown = causes.filter((cause) => !this.#note(cause));
    await Promise.all(unknown.map((cause) => this.#findHolder(cause)));
  }

  /** Updates the problem of a cause. False if the holder of the address has to be looked up first. */
  #note(cause: string): boolean {
    const group = this.#watch.group(cause);
    const first = group?.values().next().value;
    if (group === undefined || first === undefined) {
      this.#holders.delete(cause);
      this.#table.note(`listen ${cause}`, undefined);
      return true;
    }
    const holder = this.#holders.get(cause);
    if (isTaken(first) && this.#holderOf !== undefined && holder?.place !== placeOf(first)) {
      return false;
    }
    const problem = listenProblem(first, group.size, this.#platform, holder?.text);
    this.#table.note(`listen ${cause}`, problem);
    return true;
  }

  async #findHolder(cause: string): Promise<void> {
    const first = this.#watch.group(cause)?.values().next().value;
    if (first !== undefined) {
      const { protocol, listen } = first;
      const text = await this.#holderOf?.({ protocol, ...listen });
      this.#holders.set(cause, { place: placeOf(first), text });
    }
    // The first listener may have changed meanwhile; its holder is looked up next then.
    if (!this.#note(cause)) this.#schedule(cause);
  }
}

function isTaken({ code }: ListenFailure): boolean {
  return code === 'KPNG_LISTEN_ADDRESS_IN_USE';
}

function placeOf({ protocol, listen }: ListenFailure): string {
  return portalText({ ...listen, protocol });
}

function serviceKey({ code, message }: KpngError): string {
  return `service ${code} ${message}`;
}
