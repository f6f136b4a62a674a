/** What an operator sees of a restart: the admin socket, commands, pages and the log. */
import { existsSync, readdirSync } from 'node:fs';
import { dirname } from 'node:path';
import type { StatusView } from '../../src/admin/views.ts';
import { runHere, type Outcome } from '../support/cli.ts';
import { handoverRig, longConnection } from '../support/handover-rig.ts';
import { linuxTest } from '../support/linux-sys.ts';

const run = (socket: string, ...command: string[]): Promise<Outcome> =>
  runHere(...command, '--socket', socket);

async function status(socket: string): Promise<StatusView> {
  const { stdout, stderr } = await run(socket, 'status', '--output=json');
  if (stdout === '') throw new Error(stderr);
  return JSON.parse(stdout) as StatusView;
}

linuxTest('the admin socket is the new process’s as soon as it serves', async (t) => {
  const rig = await handoverRig(t);
  const flag = `--admin-socket=${rig.admin}`;
  const first = await rig.serve(flag);
  const long = await longConnection(rig.port);
  const { pid = 0 } = first.child;
  t.match(await status(rig.admin), {
    health: { state: 'ready' },
    process: { pid, successor: null },
  });

  const second = rig.start(flag);
  await second.line('Took over from the previous process', { pid });
  t.match(await status(rig.admin), {
    health: { state: 'ready' },
    process: { pid: second.child.pid },
  });

  const { path } = await first.line('Serving the admin API beside the new process');
  const own = String(path);
  t.equal(own, `${rig.admin}.${pid}`);
  t.match(await status(own), {
    health: { state: 'down', reasons: [{ code: 'replaced' }] },
    process: { pid, successor: second.child.pid },
    proxy: { active: { tcp: 1 } },
  });
  t.match(
    (await run(own, 'status')).stdout,
    /^new process +process \d+ takes the new connections/m,
  );
  t.match((await run(own, 'connections')).stdout, /echo:tcp/, 'what it still waits for');
  const refused = { code: 1, stderr: /process \d+ has taken over .*\(KPNG_ADMIN_REFUSED\)/ };
  t.match(await run(own, 'drain', '--all'), refused);
  t.match(await run(own, 'undrain', 'default/echo'), refused);
  t.match((await run(rig.admin, 'drain', 'default/echo')).stdout, /^Draining default\/echo: /);

  await long.end();
  t.match(await first.exited, { code: 0 });
  t.notOk(existsSync(own), 'it goes with its process');
  second.kill('SIGTERM');
  await second.exited;
  t.same(readdirSync(dirname(rig.admin)), [], 'nothing is left');
});
