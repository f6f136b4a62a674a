import t from 'tap';
import { cleanUpNftables } from '../../../src/portal/nftables/left-over.ts';
import { exits, FakeExec } from '../../support/fake-exec.ts';

/** What `nft list table inet kpng-userspace` prints, as far as it is about services. */
const TABLE = `table inet kpng-userspace {
	map services4 {
		type ipv4_addr . inet_proto . inet_service : inet_service
		elements = { 10.96.0.10 . udp . 53 : 40001,
			     10.96.0.11 . tcp . 80 : 40002 }
	}
	set empty4 {
		type ipv4_addr . inet_proto . inet_service
		elements = { 10.96.0.12 . udp . 53 }
	}
	map node-ports6 {
		type inet_proto . inet_service : inet_service
		elements = { udp . 30053 : 40003 }
	}
}
`;

const FLOW = (destination: string, port: number, answering: string, answeringPort: number) =>
  `udp 17 29 src=192.0.2.9 dst=${destination} sport=5000 dport=${port} src=${answering} ` +
  `dst=192.0.2.9 sport=${answeringPort} dport=5000 mark=0 use=1\n`;

/** A host with that table and some remembered flows, or without. */
function host({ conntrack = true } = {}): FakeExec {
  return new FakeExec(({ file, args }) => {
    if (file === 'nft') return args[0] === 'list' ? { stdout: TABLE } : {};
    if (!conntrack) return { fails: 'missing' };
    if (!args.includes('-L')) return {};
    return args.includes('ipv4')
      ? {
          stdout:
            FLOW('10.96.0.10', 53, '192.0.2.5', 40_001) +
            FLOW('10.96.0.12', 53, '10.96.0.12', 53) +
            FLOW('198.51.100.1', 53, '198.51.100.1', 53),
        }
      : {
          stdout:
            FLOW('2001:db8::5', 30_053, '2001:db8::5', 40_003) +
            FLOW('2001:db8::99', 30_053, '2001:db8::99', 30_053),
        };
  });
}

const LOCAL = new Set(['192.0.2.5', '2001:db8::5']);

t.test(
  'with the table go the UDP flows that it has led to proxy ports, and no others',
  async (t) => {
    const fake = host();
    t.equal(await cleanUpNftables(fake.exec, 'kpng-userspace', LOCAL), undefined);
    const { lines } = fake;
    t.match(lines.slice(0, 2), ['nft list table inet kpng-userspace', 'nft -f -']);
    t.same(
      lines.filter((line) => line.startsWith('conntrack -D')),
      [
        'conntrack -D -f ipv4 -p udp --orig-port-dst 53 --orig-dst 10.96.0.10 --reply-src 192.0.2.5 --reply-port-src 40001',
        'conntrack -D -f ipv6 -p udp --orig-port-dst 30053 --orig-dst 2001:db8::5 --reply-src 2001:db8::5 --reply-port-src 40003',
      ],
    );
  },
);

t.test('without conntrack the table goes all the same, and it is told', async (t) => {
  const fake = host({ conntrack: false });
  t.match(await cleanUpNftables(fake.exec, 'kpng-userspace', LOCAL), {
    code: 'KPNG_PORTAL_TOOL_MISSING',
    message: /no conntrack/,
  });
  t.ok(fake.lines.includes('nft -f -'));
});

t.test('where there is no such table, nothing is asked of conntrack', async (t) => {
  const fake = new FakeExec(({ args }) =>
    args[0] === 'list' ? exits('Error: No such file or directory\n') : {},
  );
  t.equal(await cleanUpNftables(fake.exec, 'kpng-userspace', LOCAL), undefined);
  t.same(fake.lines, ['nft list table inet kpng-userspace', 'nft -f -']);
  await t.rejects(cleanUpNftables(fake.exec, 'no such; name', LOCAL), { code: 'KPNG_USAGE' });
});
