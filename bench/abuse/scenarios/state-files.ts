import { setTimeout as wait } from 'node:timers/promises';
import { writeFileSync } from 'node:fs';
import { renderState } from '../../../examples/support/state-file.ts';
import type { Abuse, Size } from '../scenario.ts';

/** Texts that cost much more than their size. `scale` 1: as large as the limits of the file allow. */
function bombs(good: string, size: Size): readonly string[] {
  const some = (most: number): number => size.pick(most / 50, most);
  const labels = (count: number, line: (n: number) => string): string =>
    Array.from({ length: count }, (_, n) => line(n)).join('');
  // Valid but for what follows: the control service is in them.
  const head = `${good}  - service:\n      name: a\n      labels:`;
  return [
    `${head}\n${labels(some(100_000), (n) => `        k${n}: v\n`)}`,
    `${head} {${labels(some(20_000), (n) => `k${n}: v, `)}}\n`,
    '['.repeat(some(8_000_000)),
    `services: ${'- '.repeat(some(100_000))}`,
    `${'? '.repeat(31)}x`,
    `a: &a [x,x,x,x,x,x,x,x,x]\n${Array.from({ length: 9 }, (_, n) => `${'bcdefghij'[n]}: &${'bcdefghij'[n]} [${`*${'abcdefghi'[n]},`.repeat(9)}]`).join('\n')}`,
    `${good}${labels(some(400_000), (n) => `  - service: {name: s${n}}\n`)}`,
    '\u0000\uFFFD'.repeat(some(100_000)),
  ];
}

/** A good file must not wait long behind a bad one, and what is served stays until then. */
export const stateFiles: Abuse = {
  name: 'state-files',
  title: 'State files made to be expensive, each followed by a good one',
  engines: ['node'],
  memoryMiB: 600,
  async run(stage, size) {
    const mistakes: string[] = [];
    const all = bombs(renderState([stage.controlService()]), size);
    let number = 0;
    let longest = 0;
    for (const bomb of all) {
      number += 1;
      writeFileSync(stage.input, bomb);
      await wait(size.pick(100, 1000));
      const begun = performance.now();
      const host = `127.78.7.${number}`;
      const { tcp: port } = stage.target;
      stage.writeState({
        namespace: 'abuse',
        name: `after-${number}`,
        clusterIP: host,
        ports: [{ name: 'p', protocol: 'TCP', port, targetPort: port }],
        endpoints: [{ name: 'pod', address: stage.place.endpointIp }],
      });
      await stage
        .opens(host, port)
        .catch(() => mistakes.push(`bomb ${number}: no good file after`));
      longest = Math.max(longest, performance.now() - begun);
    }
    return {
      did: `${all.length} files; a good one took ${(longest / 1000).toFixed(1)} s at most`,
      mistakes,
    };
  },
};
