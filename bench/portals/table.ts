/** The results as rows of text. */
import { threeDigits } from '../report/stats.ts';
import type { PortalReport, PortalResult, Times } from './result.ts';
import { CHANGE_KINDS, type ChangeKind } from './subject.ts';

const CHANGE_WORDS: Readonly<Record<ChangeKind, string>> = {
  added: 'service added',
  endpoint: 'endpoint added',
  removed: 'service removed',
};

/** From nothing to the first state, and what the proxy is like then. */
export function coldRows({ results }: PortalReport): string[][] {
  return [
    [
      'service ports',
      'portal',
      'served',
      'until the last rule, s',
      'CPU, s',
      'processes',
      'idle CPU, %',
      'resident MB',
      'its own MB',
    ],
    ...results.map((result) => [
      result.servicePorts.toLocaleString('en'),
      result.subject,
      isAlone(result) ? '-' : result.served.toLocaleString('en'),
      seconds(result),
      threeDigits(result.coldCpu),
      result.coldProcesses.toLocaleString('en'),
      threeDigits(result.idleCpu),
      (result.resident / 1e6).toFixed(0),
      (result.anonymous / 1e6).toFixed(0),
    ]),
  ];
}

/** One change when all of that is there. */
export function changeRows({ results }: PortalReport): string[][] {
  const rows = [
    ['service ports', 'portal', 'change', 'seen, ms', 'seen in a row, ms', 'done, ms', 'processes'],
  ];
  for (const result of results) {
    for (const kind of CHANGE_KINDS) {
      const { done, seen, seenInRow, processes } = result.changes[kind];
      rows.push([
        kind === CHANGE_KINDS[0] ? result.servicePorts.toLocaleString('en') : '',
        kind === CHANGE_KINDS[0] ? result.subject : '',
        CHANGE_WORDS[kind],
        timesText(seen),
        timesText(seenInRow),
        timesText(done),
        processes.toLocaleString('en'),
      ]);
    }
  }
  return rows;
}

/** How many times as long something takes with the peer; undefined where one of both does not tell. */
export type Factors = Readonly<Record<'seen' | 'seenInRow' | 'done', number | undefined>>;

export interface Comparison {
  readonly servicePorts: number;
  readonly added: Factors;
  readonly removed: Factors;
}

/**
 * The peer's medians as multiples of a portal's, at the largest number of service ports that both
 * were measured with; undefined when there is none.
 */
export function comparison(
  { results }: PortalReport,
  portal: string,
  peer: string,
): Comparison | undefined {
  const of = (subject: string): PortalResult[] =>
    results.filter((result) => result.subject === subject);
  const pairs = of(peer).flatMap((theirs) => {
    const ours = of(portal).find(({ servicePorts }) => servicePorts === theirs.servicePorts);
    return ours === undefined ? [] : [{ ours, theirs }];
  });
  const last = pairs.toSorted((a, b) => a.ours.servicePorts - b.ours.servicePorts).at(-1);
  if (last === undefined) return undefined;
  const { ours, theirs } = last;
  const factors = (kind: ChangeKind): Factors => {
    const [mine, other] = [ours.changes[kind], theirs.changes[kind]];
    const factor = (what: keyof Factors): number | undefined => {
      const [base, value] = [mine[what]?.median, other[what]?.median];
      return base === undefined || value === undefined ? undefined : value / base;
    };
    return { seen: factor('seen'), seenInRow: factor('seenInRow'), done: factor('done') };
  };
  return {
    servicePorts: ours.servicePorts,
    added: factors('added'),
    removed: factors('removed'),
  };
}

function isAlone({ subject }: PortalResult): boolean {
  return subject.endsWith('rules alone');
}

function seconds({ cold: { median, min, max, samples } }: PortalResult): string {
  const text = (ms: number): string => threeDigits(ms / 1000);
  return samples === 1 ? text(median) : `${text(median)} (${text(min)}-${text(max)})`;
}

function timesText(times: Times | undefined): string {
  return times === undefined ? '-' : `${threeDigits(times.median)} / ${threeDigits(times.p95)}`;
}
