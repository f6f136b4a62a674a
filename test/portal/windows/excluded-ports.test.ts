import t from 'tap';
import { PortAllocator } from '../../../src/portal/proxy-ports.ts';
import { excludedPorts } from '../../../src/portal/windows/listing.ts';
import { captureLog } from '../../support/captured-log.ts';
import { exits, FakeExec } from '../../support/fake-exec.ts';

const RANGE = { first: 36_000, last: 36_009 };
const table = (...rows: readonly string[]) =>
  ['', 'Start Port    End Port', '----------    --------', ...rows, ''].join('\r\n');

t.test('ports that Windows has reserved are never handed out, and told once', async (t) => {
  const fake = new FakeExec(({ args }) => ({
    stdout:
      args.at(-1) === 'protocol=tcp' ? table('  35990  36003', '  80  80') : table('36008 36100 *'),
  }));
  const { log, lines } = await captureLog();
  const reserved = await excludedPorts(fake.exec, RANGE, log);
  t.same(fake.lines, [
    'netsh interface ipv4 show excludedportrange protocol=tcp',
    'netsh interface ipv4 show excludedportrange protocol=udp',
  ]);
  t.match(lines(), [{ level: 'info', ports: ['36000-36003', '36008-36009'] }]);
  const allocator = new PortAllocator(RANGE, Math.random, new Map(), reserved);
  const ports = new Set(Array.from({ length: 5 }, () => allocator.allocate()));
  t.same(ports, new Set([36_004, 36_005, 36_006, 36_007, undefined]));
});

t.test('nothing is told where nothing is reserved', async (t) => {
  const { log, lines } = await captureLog();
  const fake = new FakeExec(() => ({ stdout: table('80 80') }));
  t.same(await excludedPorts(fake.exec, RANGE, log), []);
  t.same(lines(), []);
});

t.test('without an answer of netsh all ports are tried', async (t) => {
  const { log, lines } = await captureLog();
  const fake = new FakeExec(() => exits('no'));
  t.same(await excludedPorts(fake.exec, RANGE, log), []);
  t.match(lines(), [{ level: 'warn', msg: /not known which ports/ }]);
});
