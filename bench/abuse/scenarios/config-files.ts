import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import type { Abuse } from '../scenario.ts';
import type { Stage } from '../stage.ts';

const GOOD =
  'apiVersion: kpng-userspace/v1alpha1\nkind: UserspaceProxyConfiguration\nmaxConnections: 20000\n';

const BOMBS: readonly string[] = [
  `${'? '.repeat(31)}x`,
  'a: b\n'.repeat(200_000),
  Array.from({ length: 60_000 }, (_, n) => `k${n}: v\n`).join(''),
  '['.repeat(1_000_000),
  '{a: '.repeat(200_000),
  `a: &a [x,x,x,x,x,x,x,x,x]\n${Array.from({ length: 12 }, (_, n) => `${'bcdefghijklm'[n]}: &${'bcdefghijklm'[n]} [${`*${'abcdefghijkl'[n]},`.repeat(9)}]`).join('\n')}`,
  'maxConnections: 1e999999999\n',
  '\u0000'.repeat(100_000),
  `%YAML 9.9\n---\n${'- '.repeat(50_000)}`,
  `kind: ${'x'.repeat(900_000)}`,
];

const pathOf = (stage: Stage): string => join(stage.folder, 'config.yaml');

/** The process reads it again at HUP, and has to keep its previous settings. */
export const configFiles: Abuse = {
  name: 'config-files',
  title: 'Configuration files made to be expensive, at HUP',
  engines: ['node'],
  memoryMiB: 300,
  stage(stage) {
    writeFileSync(pathOf(stage), GOOD);
    return { args: [`--config=${pathOf(stage)}`] };
  },
  async run(stage, size) {
    for (const bomb of BOMBS) {
      writeFileSync(pathOf(stage), bomb);
      stage.proxy.signal('SIGHUP');
      await wait(size.pick(300, 2000));
    }
    writeFileSync(pathOf(stage), GOOD);
    stage.proxy.signal('SIGHUP');
    await wait(500);
    return { did: `${BOMBS.length} files, the largest 1 MB` };
  },
};
