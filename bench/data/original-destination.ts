/**
 * `node bench/data/original-destination.ts`, as root: what it costs to ask a redirected connection where it
 * was meant to go, beside asking for its peer's address, which needs no connection tracking. All in a
 * network namespace of its own.
 */
import { execFileSync } from 'node:child_process';
import { EAGAIN } from '../../src/proxysocket/linux/sys/abi.ts';
import { importFfi, openLibrary } from '../../src/proxysocket/linux/sys/library.ts';
import { addressOf, Pinned } from '../../src/proxysocket/linux/sys/memory.ts';
import { Sys } from '../../src/proxysocket/linux/sys/sys.ts';

const SERVICE = { address: '10.96.0.1', port: 80 };
const LISTENER = { address: '0.0.0.0', port: 8080 };
/** Connections that are open at the same time, each with its entries in the kernel's tables. */
const CONNECTIONS = 2000;
const ROUNDS = 25;

/** `IPPROTO_IP` and `SO_ORIGINAL_DST` of linux/netfilter_ipv4.h. */
const [LEVEL, OPTION] = [0, 80];

const RULES = `table ip original_destination {
  chain output {
    type nat hook output priority -100;
    ip daddr ${SERVICE.address} tcp dport ${SERVICE.port} redirect to :${LISTENER.port}
  }
}`;

const VIA = ['dev', 'lo', 'src', '127.0.0.1'];

function outside(): void {
  const name = `kpngbench-${process.pid}-original`;
  const inside = ['netns', 'exec', name];
  execFileSync('ip', ['netns', 'add', name]);
  try {
    execFileSync('ip', ['-n', name, 'link', 'set', 'lo', 'up']);
    execFileSync('ip', ['-n', name, 'route', 'add', `${SERVICE.address}/32`, ...VIA]);
    execFileSync('ip', [...inside, 'nft', '-f', '-'], { input: RULES });
    const self = [process.execPath, import.meta.filename, 'inside'];
    execFileSync('ip', [...inside, ...self], { stdio: 'inherit' });
  } finally {
    execFileSync('ip', ['netns', 'delete', name]);
  }
}

async function measure(): Promise<void> {
  const lib = openLibrary(await importFfi());
  const { sockets } = new Sys(lib);
  const listener = sockets.stream(4);
  check(sockets.bind(listener, LISTENER), 'bind');
  check(sockets.listen(listener, CONNECTIONS), 'listen');
  const accepted = Array.from({ length: CONNECTIONS }, () => {
    sockets.connect(sockets.stream(4), SERVICE);
    return acceptOne(() => sockets.accept(listener));
  });
  const memory = new Pinned(lib.ffi, 32);
  const [value, length] = [addressOf(memory), addressOf(memory, 16)];
  const kinds: Readonly<Record<string, (fd: number) => number>> = {
    'where it was meant to go (SO_ORIGINAL_DST)': (fd) =>
      lib.c.getsockopt(fd, LEVEL, OPTION, value, length),
    'its peer (getpeername)': (fd) => lib.c.getpeername(fd, value, length),
  };
  for (const [what, ask] of Object.entries(kinds)) {
    const costs = Array.from({ length: ROUNDS }, () => {
      const before = process.cpuUsage();
      for (const fd of accepted) {
        memory.view.setUint32(16, 16, true);
        check(ask(fd), what);
      }
      const { user, system } = process.cpuUsage(before);
      return (user + system) / accepted.length;
    }).toSorted((one, other) => one - other);
    const [least, median, most] = [0, ROUNDS >> 1, ROUNDS - 1].map((at) => costs[at]?.toFixed(2));
    process.stdout.write(`${what}: ${median} (${least}-${most}) µs of CPU\n`);
    const told = `${[4, 5, 6, 7].map((at) => memory.bytes[at]).join('.')}:${memory.view.getUint16(2)}`;
    process.stdout.write(`  the last one answered ${told}\n`);
  }
}

/** The next connection, which the kernel may need a moment for. */
function acceptOne(accept: () => number): number {
  const end = performance.now() + 5000;
  for (;;) {
    const fd = accept();
    if (fd !== -EAGAIN || performance.now() > end) return check(fd, 'accept');
  }
}

/** Throws an Error when a call has failed. */
function check(result: number, what: string): number {
  if (result < 0) throw new Error(`${what}: ${result}`);
  return result;
}

if (process.argv[2] === 'inside') await measure();
else outside();
