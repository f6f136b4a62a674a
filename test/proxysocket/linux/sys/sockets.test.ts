import { constants } from 'node:os';
import * as k from '../../../../src/proxysocket/linux/sys/abi.ts';
import { Pinned } from '../../../../src/proxysocket/linux/sys/memory.ts';
import { systemError } from '../../../../src/proxysocket/linux/sys/abi.ts';
import { linuxTest, newSys } from '../../../support/linux-sys.ts';

linuxTest('error numbers are those of this system', (t) => {
  const known = k as unknown as Record<string, number>;
  const names = Object.keys(constants.errno).filter((name) => name in known);
  t.ok(names.length >= 12, `${names.length} of them`);
  for (const name of names) {
    t.equal(known[name], constants.errno[name as keyof typeof constants.errno], name);
  }
  t.match(systemError(9999, 'read').code, /9999/, 'also when it has no name');
  t.match(systemError(k.EAGAIN, 'read'), { code: 'EAGAIN', syscall: 'read', errno: -11 });
});

linuxTest('a failed call returns its error number', (t) => {
  const sys = newSys();
  const memory = new Pinned(sys.ffi, 8);
  t.equal(sys.read(-1, memory, 8), -k.EBADF);
  t.equal(sys.listen(-1, 1), -k.EBADF);
  t.equal(sys.getOption(-1, k.SOL_SOCKET, k.SO_ERROR), -k.EBADF);
  t.equal(sys.localAddress(-1), undefined);
  t.equal(sys.queued(-1), 0);
  const fd = sys.stream(4);
  t.equal(sys.write(fd, memory, 8), -k.EPIPE, 'and no signal ends the process');
  t.equal(sys.remoteAddress(fd), undefined);
  const nowhere = { address: '198.51.100.1', port: 0 };
  t.equal(sys.bind(fd, nowhere), -constants.errno.EADDRNOTAVAIL);
  sys.close(fd);
});
