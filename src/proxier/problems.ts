import type { KpngError } from '../errors.ts';
import { type PortalProblem, portalText } from '../portal/portal.ts';
import { listenerClosed, listenerFailed, listenerOpened } from '../proxysocket/events.ts';
import type { Protocol } from '../proxysocket/spec.ts';
import { Subscriptions } from '../util/channel.ts';
import type { Clock, Timer } from '../util/clock.ts';
import { problemChanged, type Problem } from './events.ts';
import { causeOf, type ListenFailure, listenProblem, portalProblem } from './report.ts';

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

export type HolderOf = (address: {
  readonly protocol: Protocol;
  readonly address: string;
  readonly port: number;
}) => Promise<string | undefined>;

type Listener = Pick<ListenFailure, 'servicePort' | 'protocol' | 'listen'>;

/**
 * Collects the problems of services, portals and listeners, and publishes their changes.
 *
 * Events of listeners do not identify the engine, so a process has one engine for each set of service port names.
 */
export class Problems {
  readonly #options: ProblemsOptions;
  /** The current problems by key. `reported`: the count that was published last. */
  readonly #published = new Map<string, { readonly problem: Problem; readonly reported: number }>();
  readonly #events = new Subscriptions();
  /** The listeners that cannot be opened, by service port, protocol and address. */
  readonly #failures = new Map<string, ListenFailure>();
  #portalKeys: readonly string[] = [];
  #listenerKeys: readonly string[] = [];
  /** The process that holds the first address in use, looked up once. */
  #holder: Record<'address' | 'text', string | undefined> | undefined;
  /** Whether listeners have unpublished changes. */
  #hasNews = false;
  #timer: Timer | undefined;
  #heldBack = false;

  constructor(options: ProblemsOptions) {
    this.#options = options;
    this.#events.on(listenerFailed, ({ servicePort, protocol, listen, code, error }) => {
      if (!options.isOurs(servicePort)) return;
      const cause = systemWord(error);
      this.#addFailure({ servicePort, protocol, listen, code, cause });
    });
    this.#events.on(listenerOpened, (event) => this.#deleteFailure(event));
    this.#events.on(listenerClosed, (event) => this.#deleteFailure(event));
  }

  list(): Problem[] {
    return [...this.#published.values()].map(({ problem }) => problem);
  }

  ofService(before: readonly KpngError[], now: readonly KpngError[]): void {
    if (before.length === 0 && now.length === 0) return;
    const problems = now.map((error): [string, Problem] => {
      const { code, message, servicePort } = error;
      return [serviceKey(error), { code, message, servicePort, count: 1 }];
    });
    this.#replace(before.map(serviceKey), new Map(problems));
  }

  ofPortals(problems: readonly PortalProblem[]): void {
    const now = new Map<string, Problem>();
    for (const [code, group] of Map.groupBy(problems, (each) => each.code)) {
      now.set(`portal ${code}`, portalProblem(group));
    }
    this.#portalKeys = this.#replace(this.#portalKeys, now);
  }

  /** Drops the failures of listeners that are no longer needed. */
  keepListeners(isNeeded: (listener: Listener) => boolean): void {
    for (const each of this.#failures.values()) if (!isNeeded(each)) this.#deleteFailure(each);
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
    this.#events.end();
    this.#timer?.cancel();
  }

  #addFailure(failure: ListenFailure): void {
    const key = listenerKey(failure);
    const before = this.#failures.get(key);
    if (before !== undefined && causeOf(before) === causeOf(failure)) return;
    // The first failure of a cause is the one that messages name.
    this.#failures.delete(key);
    this.#failures.set(key, failure);
    this.#publishSoon();
  }

  #deleteFailure(listener: Listener): void {
    if (this.#failures.delete(listenerKey(listener))) this.#publishSoon();
  }

  #publishSoon(): void {
    this.#hasNews = true;
    if (this.#heldBack) return;
    this.#timer ??= this.#options.clock.setTimer(PUBLISH_DELAY_MS, () => void this.#publish());
  }

  /** Publishes the changes of listeners. Resolves when the holder of the first address in use is known. */
  async #publish(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = undefined;
    if (!this.#hasNews) return;
    this.#hasNews = false;
    const { holderOf, platform } = this.#options;
    const isUsed = ({ code }: ListenFailure): boolean => code === 'KPNG_LISTEN_ADDRESS_IN_USE';
    const used = [...this.#failures.values()].find(isUsed);
    const address = used && addressText(used);
    if (this.#holder?.address !== address) {
      const text = used && (await holderOf?.({ protocol: used.protocol, ...used.listen }));
      this.#holder = { address, text };
    }
    const now = new Map<string, Problem>();
    for (const [cause, failures] of Map.groupBy(this.#failures.values(), causeOf)) {
      const [first] = failures;
      if (first === undefined) continue;
      const isHeld = addressText(first) === this.#holder?.address;
      const holder = isHeld ? this.#holder?.text : undefined;
      now.set(`listen ${cause}`, listenProblem(first, failures.length, platform, holder));
    }
    this.#listenerKeys = this.#replace(this.#listenerKeys, now);
  }

  /**
   * Sets problems, and ends those of `before` that are not among them. Publishes each when it appears, doubles, halves
   * or ends. Returns the new keys.
   */
  #replace(before: readonly string[], now: ReadonlyMap<string, Problem>): readonly string[] {
    for (const key of before) {
      const ended = now.has(key) ? undefined : this.#published.get(key);
      if (ended === undefined) continue;
      this.#published.delete(key);
      problemChanged.publish({ kind: 'gone', problem: ended.problem });
    }
    for (const [key, problem] of now) {
      const { count } = problem;
      const reported = this.#published.get(key)?.reported;
      const isNews = reported === undefined || count >= reported * 2 || count * 2 <= reported;
      this.#published.set(key, { problem, reported: isNews ? count : reported });
      if (!isNews) continue;
      problemChanged.publish({ kind: reported === undefined ? 'appeared' : 'changed', problem });
    }
    return [...now.keys()];
  }
}

function addressText({ protocol, listen }: Listener): string {
  return portalText({ ...listen, protocol });
}

function listenerKey({ servicePort, protocol, listen }: Listener): string {
  return `${servicePort} ${protocol} ${listen.address} ${listen.port}`;
}

function serviceKey({ code, message }: KpngError): string {
  return `service ${code} ${message}`;
}

/** The system's error code, of the cause of an error. */
function systemWord({ cause, message }: Error): string {
  return (cause as NodeJS.ErrnoException | undefined)?.code ?? message;
}
