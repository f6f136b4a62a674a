import type { Agent as HttpAgent } from 'node:http';

/**
 * What the program uses of node:http. Importing that module reads all its exports, among them those of a WebSocket
 * client, which Node loads when they are read: 15 MB.
 */
export type Agent = HttpAgent;
export const { createServer, request, Agent } = process.getBuiltinModule('node:http');
