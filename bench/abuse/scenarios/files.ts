/** Files that are made to be expensive, and disks without room. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { renderState } from '../../../examples/support/state-file.ts';
import { crowd, destroyAll } from '../crowd.ts';
import type { Abuse, Outcome, Size } from '../scenario.ts';
import type { Stage, StageOptions } from '../stage.ts';

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

/** Connections that are each some lines of the log with -v=4. */
async function chatter(stage: Stage, size: Size): Promise<Outcome> {
  const place = await stage.expose(stage.target.tcp, [stage.place.endpointIp]);
  const rounds = size.pick(4, 40);
  for (let round = 0; round < rounds; round += 1) {
    const clients = await crowd(100, place, (socket) => socket.end('x'));
    destroyAll(clients);
  }
  return { did: `${rounds * 100} connections with -v=4` };
}

export const logUnread: Abuse = {
  name: 'log-unread',
  title: 'A log without a reader',
  engines: ['node'],
  stage: () => ({ log: 'unread', args: ['-v=4'] }),
  run: chatter,
};

export const logDiskFull: Abuse = {
  name: 'log-disk-full',
  short: false,
  title: 'A log on a full disk',
  engines: ['node'],
  stage: () => ({ log: '/dev/full', args: ['-v=4'] }),
  run: chatter,
};

/** Mounts a tiny file system for itself alone, fills it, and becomes the program. */
const SCRIPT = `
mount -t tmpfs -o size=16k tmpfs "$0" || exit 1
head -c 64k /dev/zero > "$0/all-there-is" 2> /dev/null
exec "$@"
`;

/** The folder on the full file system. */
function fullFolder(folder: string): string {
  return join(folder, 'full');
}

/** Options with which the program has `full` in the folder as TMPDIR, without room for a byte. Needs root. */
export function onFullDisk(folder: string): Pick<StageOptions, 'inside' | 'env'> {
  const full = fullFolder(folder);
  mkdirSync(full);
  return {
    inside: ['unshare', '--mount', '--propagation', 'private', 'sh', '-c', SCRIPT, full],
    env: { TMPDIR: full },
  };
}

export const diskFull: Abuse = {
  name: 'disk-full',
  title: 'to-file on a full disk',
  short: false,
  engines: ['node'],
  needs: ['root', 'unshare', 'mount'],
  stage: (stage) => ({
    ...onFullDisk(stage.folder),
    sink: ['to-file', `--output=${join(fullFolder(stage.folder), 'state.yaml')}`],
    carries: false,
  }),
  async run(stage, size) {
    const changes = size.pick(5, 40);
    for (let change = 0; change < changes; change += 1) {
      stage.writeState({ ...stage.controlService(), name: `changed-${change}` });
      await wait(250);
    }
    return { did: `${changes} changes of the state` };
  },
};
