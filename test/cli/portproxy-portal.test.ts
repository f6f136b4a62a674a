import t from 'tap';
import { parse } from '../../src/cli/parse.ts';
import { createPortProxy } from '../../src/cli/sinks/userspace-portal.ts';
import type { UserspaceOptions } from '../../src/cli/sinks/userspace-options.ts';
import { PortAllocator } from '../../src/portal/port-allocator.ts';
import { captureLog } from '../support/captured-log.ts';
import { FakeNetsh } from '../support/fake-netsh.ts';

function optionsOf(flags: string): UserspaceOptions {
  const invocation = parse(`local to-winuserspace ${flags}`.split(' '));
  if (invocation.kind !== 'run') throw new Error(invocation.kind);
  return invocation.sink.options as UserspaceOptions;
}

t.test('--portal portproxy is for Windows, and says what it does not lead', async (t) => {
  const options = optionsOf('--portal portproxy --portal-interface Ethernet');
  t.match(options, { portal: 'portproxy', portalInterface: 'Ethernet' });
  const { log, messages } = await captureLog();
  const netsh = new FakeNetsh();
  const allocator = new PortAllocator(options.portRange, Math.random);
  const make = (platform: NodeJS.Platform) =>
    createPortProxy(options, allocator, log, netsh.exec, { platform, env: {} });
  await t.rejects(make('linux'), { code: 'KPNG_USAGE', message: /for Windows only/ });
  const portal = await make('win32');
  t.equal(portal.kind, 'portproxy');
  t.match(messages().at(-1), /portproxy leads TCP; UDP listens/);
  t.same(netsh.commands, [], 'nothing is run before the first sync');
  await portal.close();
});
