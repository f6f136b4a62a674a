import type { Registry } from './command.ts';
import { OTHER_COMMANDS } from './others.ts';
import { toApi } from './sinks/to-api.ts';
import { toCallout } from './sinks/to-callout.ts';
import { toExtip } from './sinks/to-extip.ts';
import { toFile } from './sinks/to-file.ts';
import { toHealthChecks } from './sinks/to-healthchecks.ts';
import { toJson } from './sinks/to-json.ts';
import { toUserspace, toUserspaceLinux, toUserspaceWindows } from './sinks/to-userspace.ts';
import { apiSource, localSource } from './sources/kpng.ts';
import { fileSource } from './sources/file.ts';
import { kubeSource } from './sources/kube.ts';

const FOREIGN = 'a backend of kpng that this program does not have';

export const REGISTRY: Registry = {
  sources: [kubeSource, fileSource, apiSource, localSource],
  sinks: [
    toUserspace,
    toUserspaceLinux,
    toUserspaceWindows,
    toJson,
    toCallout,
    toExtip,
    toHealthChecks,
    toApi,
    toFile,
  ],
  others: OTHER_COMMANDS,
  hints: {
    demo: 'part of a checkout; run npm run demo there',
    'to-iptables': FOREIGN,
    'to-ipvs': FOREIGN,
    'to-nft': FOREIGN,
    'to-ebpf': FOREIGN,
    'to-winkernel': FOREIGN,
  },
};
