/**
 * Runs a program under what containerd's default seccomp profile refuses on x86-64 without CAP_SYS_ADMIN:
 *
 *     node default-seccomp.ts PROGRAM ARGS
 *
 * The numbers are those of the strictest profile still in use, of containerd 1.5; later ones allow more. As in a
 * container, a refused call fails with EPERM, and clone3 with ENOSYS.
 */
import { importFfi } from '../../../src/proxysocket/linux/sys/library.ts';

const EPERM = 1;
const ENOSYS = 38;
const CLONE3 = 435;

/** System calls, or ranges of them, and what they are. */
const REFUSED = `
101: ptrace; 134: uselib; 136: ustat; 139: sysfs; 153: vhangup; 155-156: pivot_root, _sysctl; 159: adjtimex;
161: chroot; 163-185: acct, settimeofday, mount, swapon, reboot, iopl, init_module, quotactl and others;
212: lookup_dcookie; 227: clock_settime; 236-239: vserver, mbind, set_mempolicy, get_mempolicy;
246: kexec_load; 248-250: add_key, request_key, keyctl; 256: migrate_pages; 272: unshare; 279: move_pages;
298: perf_event_open; 300: fanotify_init; 303-305: name_to_handle_at, open_by_handle_at, clock_adjtime;
308: setns; 310-313: process_vm_readv, process_vm_writev, kcmp, finit_module; 320-321: kexec_file_load, bpf;
323-324: userfaultfd, membarrier; 327-331: preadv2, pwritev2, pkey_mprotect, pkey_alloc, pkey_free;
334-434: rseq, io_uring_setup, io_uring_enter, io_uring_register, open_tree, pidfd_open and others;
436: close_range; 438: pidfd_getfd; 440-1023: process_madvise, epoll_pwait2 and everything later;
`;

/** Both ends of each range. */
const RANGES = [...REFUSED.matchAll(/(\d+)(?:-(\d+))?: /g)].map(
  ([, first, last = first]) => [Number(first), Number(last)] as const,
);

/** Opcodes of classic BPF. */
const LOAD = 0x20;
const JUMP_EQUAL = 0x15;
const JUMP_GREATER_OR_EQUAL = 0x35;
const RETURN = 0x06;

const ALLOW = 0x7fff_0000;
const FAIL = 0x0005_0000;

/** A struct sock_filter: jumps count instructions, for a true and a false condition. */
function instruction(code: number, k: number, whenTrue = 0, whenFalse = 0): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeUInt16LE(code, 0);
  bytes.writeUInt8(whenTrue, 2);
  bytes.writeUInt8(whenFalse, 3);
  bytes.writeUInt32LE(k, 4);
  return bytes;
}

function filter(): Buffer {
  return Buffer.concat([
    // The number of the call is the first field of struct seccomp_data.
    instruction(LOAD, 0),
    instruction(JUMP_EQUAL, CLONE3, 0, 1),
    instruction(RETURN, FAIL | ENOSYS),
    ...RANGES.flatMap(([first, last]) => [
      instruction(JUMP_GREATER_OR_EQUAL, first, 0, 2),
      instruction(JUMP_GREATER_OR_EQUAL, last + 1, 1, 0),
      instruction(RETURN, FAIL | EPERM),
    ]),
    instruction(RETURN, ALLOW),
  ]);
}

const F_SETFD = 2;
const PR_SET_NO_NEW_PRIVS = 38;
const PR_SET_SECCOMP = 22;
const SECCOMP_MODE_FILTER = 2;

async function main([program = '', ...args]: readonly string[]): Promise<never> {
  const ffi = await importFfi();
  const { functions } = ffi.dlopen(null, {
    prctl: { arguments: ['i32', 'u64', 'pointer', 'u64', 'u64'], return: 'i32' },
    fcntl: { arguments: ['i32', 'i32', 'i32'], return: 'i32' },
    execv: { arguments: ['pointer', 'pointer'], return: 'i32' },
  });
  const instructions = filter();
  // A struct sock_fprog.
  const description = Buffer.alloc(16);
  description.writeUInt16LE(instructions.length / 8, 0);
  description.writeBigUInt64LE(ffi.getRawPointer(instructions), 8);
  const texts = [program, ...args].map((text) => Buffer.from(`${text}\0`));
  const list = Buffer.alloc(8 * (texts.length + 1));
  texts.forEach((text, index) => list.writeBigUInt64LE(ffi.getRawPointer(text), 8 * index));
  const path = texts[0] ?? Buffer.alloc(1);

  // Node lets no program inherit its standard streams unless it is asked to.
  for (const stream of [0, 1, 2]) functions.fcntl(stream, F_SETFD, 0);
  if (functions.prctl(PR_SET_NO_NEW_PRIVS, 1n, 0n, 0n, 0n) !== 0) throw new Error('no_new_privs');
  const filterAt = ffi.getRawPointer(description);
  if (functions.prctl(PR_SET_SECCOMP, BigInt(SECCOMP_MODE_FILTER), filterAt, 0n, 0n) !== 0) {
    throw new Error('the kernel refused the filter');
  }
  functions.execv(ffi.getRawPointer(path), ffi.getRawPointer(list));
  throw new Error(`cannot run ${program}`);
}

await main(process.argv.slice(2));
