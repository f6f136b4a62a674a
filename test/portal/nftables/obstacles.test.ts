import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { conflictingSettings } from '../../../src/portal/nftables/obstacles.ts';

t.test('settings that keep packets from transparent sockets are named', (t) => {
  const root = t.testdir();
  const set = (path: string, value = '1'): void => {
    mkdirSync(join(root, path, '..'), { recursive: true });
    writeFileSync(join(root, path), `${value}\n`);
  };
  t.same(conflictingSettings(root), [], 'a kernel without bridges');
  set('proc/sys/net/bridge/bridge-nf-call-iptables');
  set('proc/sys/net/bridge/bridge-nf-call-ip6tables', '0');
  mkdirSync(join(root, 'sys/class/net/docker0/brif'), { recursive: true });
  t.same(conflictingSettings(root), [], 'nothing is on the bridge');
  t.equal(conflictingSettings(root, true).length, 1, 'but may be later');
  set('sys/class/net/docker0/brif/veth1');
  t.match(conflictingSettings(root), [/net\.bridge\.bridge-nf-call-iptables to 0/]);
  t.equal(conflictingSettings(root).length, 1);
  set('proc/sys/net/bridge/bridge-nf-call-iptables', '0');
  set('proc/sys/net/ipv4/conf/all/src_valid_mark');
  set('proc/sys/net/ipv4/conf/eth0.7/src_valid_mark');
  t.match(conflictingSettings(root), [/net\.ipv4\.conf\.all\.src_valid_mark to 0/]);
  t.equal(conflictingSettings(root).length, 1);
  set('proc/sys/net/ipv4/conf/all/src_valid_mark', '0');
  t.match(conflictingSettings(root), [/net\.ipv4\.conf\.eth0\/7\.src_valid_mark to 0/]);
  set('proc/sys/net/ipv4/conf/eth0.7/src_valid_mark', '0');
  set('proc/sys/net/ipv4/conf/lo/src_valid_mark');
  t.same(conflictingSettings(root), [], 'the host itself');
  t.end();
});
