import type { KpngError } from '../errors.ts';
import type { PortalProblem } from '../portal/portal.ts';
import type { ListenSpec } from '../proxysocket/spec.ts';
import type { Clock, Timer } from '../util/clock.ts';
import { problemChanged } from './events.ts';
import { ListenWatch } from './listen-watch.ts';
import { ProblemBook, type Problem } from './problem-book.ts';
import { listenProblem, portalProblem } from './report.ts';

/** Listeners come back one by one; their news is told together after this long. Milliseconds. */
const GATHER_MS = 1000;

export interface ProblemsOptions {
  readonly clock: Clock;
  readonly platform: NodeJS.Platform;
  /** Whether a service port is one of this proxier. */
  readonly isOurs: (servicePort: string) => boolean;
}

/** Gathers the problems of services, portals and listeners, and publishes what is new about them. */
export class Problems {
  readonly #clock: Clock;
  readonly #platform: NodeJS.Platform;
  readonly #book = new ProblemBook((kind, problem) => {
    if (problemChanged.hasSubscribers) problemChanged.publish({ kind, problem });
  });
  readonly #watch: ListenWatch;
  /** Causes of listener failures with news. */
  readonly #news = new Set<string>();
  #portalCodes: ReadonlySet<string> = new Set();
  #timer: Timer | undefined;
  #heldBack = false;

  constructor(options: ProblemsOptions) {
    this.#clock = options.clock;
    this.#platform = options.platform;
    this.#watch = new ListenWatch(options.isOurs, (cause) => this.#heard(cause));
  }

  list(): Problem[] {
    return this.#book.list();
  }

  /** Replaces the problems of one service. */
  ofService(before: readonly KpngError[], now: readonly KpngError[]): void {
    const keys = new Set(now.map(serviceKey));
    for (const error of before) {
      if (!keys.has(serviceKey(error))) this.#book.note(serviceKey(error), undefined);
    }
    for (const error of now) {
      const { code, message, servicePort } = error;
      this.#book.note(serviceKey(error), { code, message, servicePort, count: 1 });
    }
  }

  /** Replaces the problems of all portals. */
  ofPortals(problems: readonly PortalProblem[]): void {
    const groups = new Map<string, { first: PortalProblem; count: number }>();
    for (const problem of problems) {
      const group = groups.get(problem.code);
      if (group === undefined) {
        groups.set(problem.code, { first: problem, count: 1 });
        continue;
      }
      group.count += 1;
      // The one to name does not depend on what came first, so it does not change without need.
      if (problem.message < group.first.message) group.first = problem;
    }
    for (const code of this.#portalCodes) {
      if (!groups.has(code)) this.#book.note(`portal ${code}`, undefined);
    }
    for (const [code, { first, count }] of groups) {
      this.#book.note(`portal ${code}`, portalProblem(first, count));
    }
    this.#portalCodes = new Set(groups.keys());
  }

  /** Forgets failures of listeners that a service port does not want any more. */
  keepListeners(servicePort: string, listen: readonly ListenSpec[]): void {
    this.#watch.keepOnly(servicePort, listen);
  }

  /** Runs something that opens listeners, and tells of those that fail when it is over. */
  async holdBack<T>(run: () => Promise<T>): Promise<T> {
    this.#heldBack = true;
    try {
      return await run();
    } finally {
      this.#heldBack = false;
      this.#tell();
    }
  }

  /** Follows the data path no longer. Idempotent. */
  close(): void {
    this.#watch.close();
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #heard(cause: string): void {
    this.#news.add(cause);
    if (!this.#heldBack) this.#timer ??= this.#clock.setTimer(GATHER_MS, () => this.#tell());
  }

  #tell(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    for (const cause of this.#news) {
      const group = this.#watch.group(cause);
      const first = group?.values().next().value;
      const problem =
        group === undefined || first === undefined
          ? undefined
          : listenProblem(first, group.size, this.#platform);
      this.#book.note(`listen ${cause}`, problem);
    }
    this.#news.clear();
  }
}

function serviceKey({ code, message }: KpngError): string {
  return `service ${code} ${message}`;
}
