/**
 * What keeps rules from being written is reported in the log, as a metric and by the health, with its cause; and it is
 * enough to repair that: nothing has to be restarted.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { shortDir } from '../support/short-dir.ts';
import { lab, type Lab } from './support/lab.ts';
import { Program } from './support/program.ts';
import { CLUSTER, pod, service } from './support/services.ts';

/** Something that is wrong with the host. */
interface Trouble {
  readonly name: string;
  readonly flags: string;
  readonly code: string;
  /** What the log says of it. */
  readonly says: RegExp;
  /** Brings it about: what the program is to be run with, and how it is fixed. */
  readonly begin: (
    t: Test,
    here: Lab,
  ) => Promise<{
    readonly before: readonly string[];
    readonly mend: (program: Program) => Promise<unknown>;
  }>;
}

const LEGACY = '--portal iptables --iptables-flavor legacy';

/** The real program without a right that it needs. */
const UNPRIVILEGED = `#!/bin/sh
exec /usr/bin/setpriv --bounding-set=-net_admin --inh-caps=-net_admin /usr/sbin/nft "$@"
`;

const TROUBLES: readonly Trouble[] = [
  {
    name: 'nft may not',
    flags: '--portal nftables',
    code: 'KPNG_PORTAL_PERMISSION',
    says: /Operation not permitted.*; give the process the capability CAP_NET_ADMIN/,
    async begin(t) {
      const path = shortDir(t);
      const nft = join(path, 'nft');
      symlinkSync('/usr/sbin/conntrack', join(path, 'conntrack'));
      writeFileSync(nft, UNPRIVILEGED, { mode: 0o755 });
      return {
        before: ['env', `PATH=${path}`],
        async mend() {
          rmSync(nft);
          symlinkSync('/usr/sbin/nft', nft);
        },
      };
    },
  },
  {
    name: 'another program holds the lock of iptables',
    flags: LEGACY,
    code: 'KPNG_PORTAL_LOCKED',
    says: /holding the xtables lock.*`fuser -v \/run\/xtables\.lock` shows which/,
    async begin(t) {
      const lock = join(shortDir(t), 'lock');
      const held = ['--no-fork', lock, 'sh', '-c', 'echo held; exec sleep 60'];
      const holder = spawn('flock', held, { stdio: ['ignore', 'pipe', 'inherit'] });
      t.teardown(() => holder.kill('SIGKILL'));
      await once(holder.stdout, 'data');
      return {
        before: ['env', `XTABLES_LOCKFILE=${lock}`],
        mend: async () => holder.kill('SIGKILL'),
      };
    },
  },
  {
    name: 'the container has a root that is read-only, without the lock of iptables',
    flags: LEGACY,
    code: 'KPNG_PORTAL_FAILED',
    says: /xtables\.lock: Read-only file system.*; mount \/run\/xtables\.lock of the host/,
    async begin(_, here) {
      const mount = 'mount -t tmpfs -o ro tmpfs /run && exec "$@"';
      return {
        before: ['unshare', '--mount', 'sh', '-c', mount, 'sh'],
        mend: ({ pid }) => here.sh(`nsenter --mount --target ${pid} mount -o remount,rw /run`),
      };
    },
  },
];

for (const { name, flags, code, says, begin } of TROUBLES) {
  t.test(`${name}: reported everywhere, and resolved by fixing the cause`, async (t) => {
    const here = await lab(t);
    const { before, mend } = await begin(t, here);
    const program = new Program(t, here.network, { flags, before });
    t.match(await program.error(code), { msg: /^Writing packet rules failed/, err: says });
    const labels = { portal: flags.includes('nftables') ? 'nftables' : 'iptables' };
    t.ok((await program.metric('portal_failures_total', { ...labels, code })) > 0);
    t.equal(await program.metric('portal_up', labels), 0);
    const sick = await program.page('health', '/healthz');
    t.match(sick, /^503 .*"portal-failing"\].*"the packet rules could not be written since /s);
    t.match(sick, code);

    await mend(program);
    await program.serve(service([pod('pod-a')]));
    t.match(await here.client.ask(`${CLUSTER.v4}:80`), /^pod-a/);
    t.match(await here.client.ask(`[${CLUSTER.v6}]:53/UDP`), /^pod-a/);
    t.equal(await program.metric('portal_up', labels), 1);
    t.match(await program.page('health', '/healthz'), /^200 /);
  });
}
