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
  readonly begin: (t: Test, here: Lab) => Promise<Begun>;
}

interface Begun {
  readonly before: readonly string[];
  readonly mend: (program: Program) => Promise<unknown>;
}

const NFTABLES = '--portal nftables';
const LEGACY = '--portal iptables --iptables-flavor legacy';

/** A search path with conntrack, and with scripts in place of other programs until it is fixed. */
function searchPath(t: Test, scripts: Readonly<Record<string, string | undefined>>): Begun {
  const path = shortDir(t);
  symlinkSync('/usr/sbin/conntrack', join(path, 'conntrack'));
  for (const [name, script] of Object.entries(scripts)) {
    if (script !== undefined) writeFileSync(join(path, name), script, { mode: 0o755 });
  }
  return {
    before: ['env', `PATH=${path}`],
    async mend() {
      for (const name of Object.keys(scripts)) {
        rmSync(join(path, name), { force: true });
        symlinkSync(join('/usr/sbin', name), join(path, name));
      }
    },
  };
}

/** The real program without a right that it needs. */
function unprivileged(name: string): string {
  return `#!/bin/sh
exec /usr/bin/setpriv --bounding-set=-net_admin --inh-caps=-net_admin /usr/sbin/${name} "$@"
`;
}

const TROUBLES: readonly Trouble[] = [
  {
    name: 'nft is missing',
    flags: NFTABLES,
    code: 'KPNG_PORTAL_TOOL_MISSING',
    says: /there is no nft on the PATH; install the package nftables/,
    begin: async (t) => searchPath(t, { nft: undefined }),
  },
  {
    name: 'nft may not',
    flags: NFTABLES,
    code: 'KPNG_PORTAL_PERMISSION',
    says: /Operation not permitted.*; give the process the capability CAP_NET_ADMIN/,
    begin: async (t) => searchPath(t, { nft: unprivileged('nft') }),
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
    t.match(
      sick,
      /^503 .*"failing":\[[^\]]*"portal-failing"\].*"the packet rules could not be written since /s,
    );
    t.match(sick, code);

    await mend(program);
    await program.serve(service([pod('pod-a')]));
    t.match(await here.client.ask(`${CLUSTER.v4}:80`), /^pod-a/);
    t.match(await here.client.ask(`[${CLUSTER.v6}]:53/UDP`), /^pod-a/);
    t.equal(await program.metric('portal_up', labels), 1);
    t.match(await program.page('health', '/healthz'), /^200 /);
  });
}
