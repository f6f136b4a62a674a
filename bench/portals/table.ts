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
      result.served.toLocaleString('en'),
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

function seconds({ cold: { median, min, max, samples } }: PortalResult): string {
  const text = (ms: number): string => threeDigits(ms / 1000);
  return samples === 1 ? text(median) : `${text(median)} (${text(min)}-${text(max)})`;
}

function timesText(times: Times | undefined): string {
  return times === undefined ? '-' : `${threeDigits(times.median)} / ${threeDigits(times.p95)}`;
}
