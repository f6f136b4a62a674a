import type { Resource } from './objects.ts';
import type { StatusReply } from './status.ts';

/** How the server treats requests, instead of answering them. */
export type Fault =
  /** Answers with a status. */
  | { readonly kind: 'status'; readonly reply: StatusReply }
  /** Takes the request and never answers. */
  | { readonly kind: 'silent' }
  /** Closes the connection without an answer. */
  | { readonly kind: 'cut' }
  /** Answers with a body of any text. */
  | { readonly kind: 'body'; readonly text: string }
  /** Begins with a body of any text, and never ends it. */
  | { readonly kind: 'stall'; readonly text: string }
  /** Answers with a space now and then, without end. */
  | { readonly kind: 'drip' }
  /** Answers as always, but only when the promise has resolved. */
  | { readonly kind: 'wait'; readonly until: Promise<void> };

export type Verb = 'list' | 'watch' | 'get' | 'create';

export interface FaultRule {
  readonly fault: Fault;
  /** Default: all. */
  readonly resource?: Resource | undefined;
  /** Default: all. */
  readonly verb?: Verb | undefined;
  /** How many requests it concerns. Default: all until it is taken back. */
  readonly times?: number | undefined;
}

/** The rules in force. The first one that matches counts. */
export class Faults {
  #rules: { rule: FaultRule; left: number }[] = [];

  /** Adds a rule; returns the function that takes it back. */
  add(rule: FaultRule): () => void {
    const entry = { rule, left: rule.times ?? Number.POSITIVE_INFINITY };
    this.#rules.push(entry);
    return () => {
      this.#rules = this.#rules.filter((other) => other !== entry);
    };
  }

  take(resource: Resource, verb: Verb): Fault | undefined {
    const entry = this.#rules.find(
      ({ rule, left }) =>
        left > 0 &&
        (rule.resource === undefined || rule.resource === resource) &&
        (rule.verb === undefined || rule.verb === verb),
    );
    if (entry !== undefined) entry.left -= 1;
    return entry?.rule.fault;
  }
}
