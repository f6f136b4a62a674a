import t from 'tap';
import { LinuxInterface, MARK_METRIC } from '../../../src/portal/interface/linux.ts';
import { exits } from '../../support/fake-exec.ts';
import { FakeIp } from '../../support/fake-ip.ts';

/** An interface that this program makes on a host with the interfaces lo and eth0. */
function made(name = 'kpng0') {
  const ip = new FakeIp();
  return { ip, subject: new LinuxInterface(name, ip.exec) };
}

const mine = (address: string) => ({
  address,
  prefix: address.includes(':') ? 128 : 32,
  metric: MARK_METRIC,
});

t.test('creates a missing interface, marked and up, and a bridge without dummies', async (t) => {
  const { ip, subject } = made();
  const { ours, others } = await subject.open();
  t.match(ip.link('kpng0'), { kind: 'dummy', up: true, alias: 'kpng-userspace' });
  t.same([...ours], []);
  t.same(others, [
    { address: '127.0.0.1', loopback: true },
    { address: '::1', loopback: true },
    { address: '192.0.2.5', loopback: false },
    { address: '2001:db8::5', loopback: false },
  ]);
  await subject.open();
  t.equal(ip.batches.length, 1, 'once is enough');

  ip.links.delete('kpng0');
  ip.kinds.clear();
  await t.rejects(subject.open(), {
    code: 'KPNG_PORTAL_UNSUPPORTED',
    message: /making the interface kpng0: .* neither dummy .* nor bridges; .* such as lo/,
  });
  t.notOk(ip.links.has('kpng0'));
  ip.kinds.add('bridge');
  await subject.open();
  t.match(ip.link('kpng0'), { kind: 'bridge', up: true, alias: 'kpng-userspace' });
});

t.test('recognizes its own addresses, and no others', async (t) => {
  const { ip, subject } = made('eth0');
  await subject.change('add', ['10.0.0.1', 'fd00::1']);
  ip.link('eth0').addresses.push(
    { address: '10.0.0.7', prefix: 32 },
    { address: '10.0.0.8', prefix: 24, metric: MARK_METRIC },
  );
  ip.link('lo').addresses.push(mine('10.0.0.9'));
  // However the kernel spells them.
  ip.link('eth0').addresses.push(mine('fd00:0:0:1::'), mine('2001:db8:0:1:1:1:1:1'));
  const { ours, others } = await new LinuxInterface('eth0', ip.exec).open();
  t.same([...ours], ['10.0.0.1', 'fd00::1', 'fd00:0:0:1::', '2001:db8:0:1:1:1:1:1']);
  t.match(
    others.map(({ address }) => address),
    ['127.0.0.1', '::1', '10.0.0.9', '192.0.2.5', '2001:db8::5', '10.0.0.7', '10.0.0.8'],
  );
});

t.test('a rejected address does not stop the others', async (t) => {
  const { ip, subject } = made('eth0');
  ip.link('eth0').addresses.push({ address: '10.0.0.3', prefix: 32 });
  ip.refuses = (address) =>
    address.includes(':') ? 'IPv6 is disabled on this device.' : undefined;
  const outcome = await subject.change('add', ['10.0.0.1', 'fd00::1', '10.0.0.3', '10.0.0.2']);
  t.equal((await subject.change('delete', ['10.9.9.9'])).refused.size, 0, 'it is gone already');
  t.same(outcome.existing, ['10.0.0.3']);
  t.same([...outcome.refused.keys()], ['fd00::1']);
  t.match(outcome.refused.get('fd00::1'), {
    code: 'KPNG_PORTAL_UNSUPPORTED',
    message: /^adding fd00::1\/128 on the interface eth0: .*disable_ipv6/,
  });
  t.same(ip.addresses('eth0').slice(0, 3), ['10.0.0.1/32', '10.0.0.2/32', '10.0.0.3/32']);
});

t.test('reports why it cannot do anything', async (t) => {
  const { ip, subject } = made();
  const change = async (): Promise<unknown> => subject.change('add', ['10.0.0.1']);
  const open = async (): Promise<unknown> => subject.open();
  const cases = [
    [change, { fails: 'missing' }, 'TOOL_MISSING', /no ip on the PATH; install .* iproute2/],
    [
      change,
      exits('Error: either "local" is duplicate, or "metric" is a garbage.\n', 255),
      'UNSUPPORTED',
      /iproute2 4\.19/,
    ],
    [change, exits('Cannot find device "kpng0"\nCommand failed -:1\n'), 'FAILED', /find device/],
    [open, { stdout: 'not json' }, 'FAILED', /^listing the addresses/],
    [open, exits("ip: unrecognized option '-j'\nBusyBox v1.36\n"), 'UNSUPPORTED', /iproute2 4\.19/],
  ] as const;
  for (const [action, reaction, code, message] of cases) {
    ip.broken = reaction;
    await t.rejects(action(), { code: `KPNG_PORTAL_${code}`, message }, code);
  }
});

t.test('lists again when the kernel says that something changed meanwhile', async (t) => {
  const { ip, subject } = made('eth0');
  let listings = 0;
  const exec: typeof ip.exec = async (command) => {
    listings += 1;
    const { stdout } = await ip.exec(command);
    return { stdout, stderr: 'Dump was interrupted and may be inconsistent.\n' };
  };
  await new LinuxInterface('eth0', exec).open();
  t.equal(listings, 3, 'but not for ever');
  await subject.open();
});

t.test('brings its own interface up again, and leaves that of others alone', async (t) => {
  const { ip, subject } = made();
  await subject.open();
  ip.link('kpng0').up = false;
  ip.link('eth0').up = false;
  const { others } = await subject.open();
  t.ok(ip.link('kpng0').up);
  t.same(
    others.map(({ address }) => address),
    ['127.0.0.1', '::1'],
    'addresses of interfaces that are down do not count',
  );
  const eth0 = new LinuxInterface('eth0', ip.exec);
  await t.rejects(eth0.open(), {
    code: 'KPNG_PORTAL_FAILED',
    message: /eth0 is down.*ip link set dev eth0 up/,
  });
  t.notOk(ip.link('eth0').up);
  ip.link('eth0').up = true;
  await eth0.open();
  ip.links.delete('eth0');
  await t.rejects(eth0.open(), { code: 'KPNG_PORTAL_FAILED', message: /eth0 is gone/ });
  t.notOk(ip.links.has('eth0'));
});

t.test('returns the addresses that have connections', async (t) => {
  const { ip, subject } = made();
  ip.connections.add('10.0.0.1').add('fd00::1');
  const few = await subject.inUse(['10.0.0.1', 'fd00::1', '10.0.0.2']);
  t.same([...few].sort(), ['10.0.0.1', 'fd00::1']);
  t.match(ip.commands.at(-1)?.args.join(' '), /\( src = 10\.0\.0\.1 or src = \[fd00::1\] or/);
  const many = Array.from({ length: 100 }, (_, n) => `10.0.0.${n}`);
  t.same([...(await subject.inUse(many))], ['10.0.0.1', 'fd00::1']);
  t.notMatch(ip.commands.at(-1)?.args.join(' '), 'src');
  ip.broken = { fails: 'missing' };
  t.same([...(await subject.inUse(many))], [], 'without ss it cannot be known');
});

t.test('leaves nothing behind but what is not its own', async (t) => {
  const { ip, subject } = made();
  await subject.open();
  await subject.change('add', ['10.0.0.1']);
  ip.link('kpng0').addresses.push({ address: 'fe80::1', prefix: 64, scope: 'link' });
  await subject.dispose();
  t.notOk(ip.links.has('kpng0'), 'its own interface goes as a whole');
  await subject.dispose();

  await subject.open();
  await subject.change('add', ['10.0.0.1']);
  ip.link('kpng0').addresses.push({ address: '10.0.0.7', prefix: 32 });
  await subject.dispose();
  t.same(ip.addresses('kpng0'), ['10.0.0.7/32'], 'unless someone uses it, too');

  const eth0 = new LinuxInterface('eth0', ip.exec);
  await eth0.change('add', ['10.0.0.1', 'fd00::1']);
  await eth0.dispose();
  t.same(ip.addresses('eth0'), ['192.0.2.5/24', '2001:db8::5/64']);
});

t.test('refuses names that no interface can have', async (t) => {
  for (const name of ['', '.', '..', 'a/b', 'a b', '-x', 'a'.repeat(16), 'a;b', 'a\nb', 'a#b']) {
    t.throws(() => new LinuxInterface(name), { code: 'KPNG_USAGE' }, JSON.stringify(name));
  }
  for (const name of ['eth0.100', 'br-lan', 'a'.repeat(15)]) {
    t.equal(new LinuxInterface(name).name, name);
  }
});
