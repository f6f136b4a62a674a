/** The sandbox of the manifests: seccompProfile RuntimeDefault. */
import { join } from 'node:path';
import t from 'tap';
import { Cli, stateFile } from '../support/cli.ts';
import { namedServer, request } from '../support/tcp-peers.ts';

const skip = !(process.platform === 'linux' && process.arch === 'x64') && 'only on linux';

t.test("the linux engine works under containerd's seccomp profile", { skip }, async (t) => {
  const endpoint = await namedServer(t, 'endpoint');
  const { path, ports } = await stateFile(t, [{ name: 'web', endpoints: [endpoint.port] }]);
  const line =
    `file -i ${path} to-userspace --portal address --engine auto --workers 2 --node-name n1 ` +
    '--metrics-bind-address 0 --healthz-bind-address 0';
  const harness = join(import.meta.dirname, 'support/default-seccomp.ts');
  const main = join(import.meta.dirname, '../../bin/kpng-userspace.js');
  const cli = new Cli(t, line.split(' '), main, [process.execPath, harness]);
  await cli.line('Chose --engine linux');
  await cli.line('The first complete state is in place');
  t.equal(await request(t, ports['web'] ?? 0), 'endpoint');
  t.notOk(cli.log.find(({ level }) => level === 'warn' || level === 'error'));
  cli.kill('SIGTERM');
  t.equal((await cli.exited).code, 0);
});
