import type { Abuse } from '../scenario.ts';
import {
  blackHoles,
  fewDescriptors1024,
  fewDescriptors256,
  flapping,
  floodConnections,
  neverEnding,
  neverReading,
  streams,
} from './connections.ts';
import { configFiles, diskFull, logDiskFull, logUnread, stateFiles } from './files.ts';
import { handover, killed, killedSuccessor, twoSuccessors } from './handover.ts';
import { hostileHttp, pipelinedHttp, slowHttp } from './http.ts';
import { apiClients } from './kpng-clients.ts';
import { junkServer, neverSync, orphans } from './kpng-servers.ts';
import { kubeDripping, kubeEndlessPages, kubeInformational, kubeSingleBytes } from './kube-api.ts';
import { heldPorts, sourceRanges, tmpdirFull } from './rules.ts';
import { datagrams, floodDatagrams } from './udp.ts';

/** In the order of the page. */
export const ABUSES: readonly Abuse[] = [
  streams,
  datagrams,
  fewDescriptors256,
  fewDescriptors1024,
  neverReading,
  neverEnding,
  floodConnections,
  floodDatagrams,
  blackHoles,
  flapping,
  pipelinedHttp,
  slowHttp,
  hostileHttp,
  neverSync,
  orphans,
  junkServer,
  apiClients,
  kubeSingleBytes,
  kubeEndlessPages,
  kubeDripping,
  kubeInformational,
  configFiles,
  stateFiles,
  handover,
  twoSuccessors,
  killed,
  killedSuccessor,
  logUnread,
  logDiskFull,
  diskFull,
  tmpdirFull,
  heldPorts,
  sourceRanges,
];
