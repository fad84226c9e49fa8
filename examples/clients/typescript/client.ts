// A resource manager in TypeScript: report nodes, ask for pods, end a pod when the core orders it.
//
//     node build/client.js [HOST:PORT]
//
// The exit code is 1 when the core refuses something. The error stream then has the core's message.

import { once } from "node:events";
import { argv, exit, stdin } from "node:process";
import { type ClientDuplexStream, credentials, type ServiceError } from "@grpc/grpc-js";
import * as si from "./gen/si/v1/si.js";

const rmID = "example";
const config = `
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: batch
          - name: web
            resources: {guaranteed: {vcore: 1}}  # in cores; messages count millicores
            properties: {preemption.delay: 1s}
`;

/** A refusal by the core, in the core's words. */
class Refused extends Error {}

/** One stream of the service, which carries messages to the core and answers back. */
class Stream<Message, Answer> {
  private readonly answers: AsyncIterator<Answer>;

  constructor(private readonly call: ClientDuplexStream<Message, Answer>) {
    this.answers = call[Symbol.asyncIterator]();
  }

  send(message: Message): void {
    this.call.write(message);
  }

  /** Wait for the next answer. */
  async receive(): Promise<Answer> {
    const { value, done } = await this.answers.next();
    if (done) throw new Refused("the core ended the stream");
    return value;
  }

  /** End this side, and read until the core has handled every message and ends its side. */
  async close(): Promise<void> {
    this.call.end();
    while (!(await this.answers.next()).done);
  }
}

/** Return a quantity of processor time. */
function cores(millicores: number): si.Resource {
  return { resources: { vcore: { value: BigInt(millicores) } } };
}

/** Return an ask: an allocation that names no node. */
function ask(allocationKey: string, applicationID: string, millicores: number): si.Allocation {
  return si.Allocation.fromPartial({ allocationKey, applicationID, resourcePerAlloc: cores(millicores) });
}

/** Read placements and orders to release pods, until the pod with this key is placed. */
async function follow(stream: Stream<si.AllocationRequest, si.AllocationResponse>, last: string): Promise<void> {
  for (let placed = false; !placed; ) {
    const answer = await stream.receive();
    for (const { reason } of answer.rejectedAllocations) throw new Refused(reason);
    for (const pod of answer.new) {
      console.log(`${pod.allocationKey} placed on ${pod.nodeID}`);
      placed ||= pod.allocationKey === last;
    }
    for (const order of answer.released) {
      const why = si.TerminationType[order.terminationType];
      console.log(`${order.allocationKey} must end for ${order.beneficiary}: ${why}`);
      // End the pod here. When it has ended, send the order back: that confirms the release.
      console.log(`${order.allocationKey} ended`);
      stream.send(si.AllocationRequest.fromPartial({ rmID, releases: { allocationsToRelease: [order] } }));
    }
  }
}

/** Play a resource manager from its registration to its end. */
async function run(core: si.SchedulerClient): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const registration = si.RegisterResourceManagerRequest.fromPartial({ rmID, config });
    core.registerResourceManager(registration, (error) => (error ? reject(error) : resolve()));
  });
  console.log(`registered as ${rmID}`);
  const nodes = new Stream(core.updateNode());
  const applications = new Stream(core.updateApplication());
  const allocations = new Stream(core.updateAllocation());

  const names = ["node-1", "node-2"];
  const { CREATE, DECOMISSION } = si.NodeInfo_ActionFromRM;
  const created = names.map((nodeID) => ({ nodeID, action: CREATE, schedulableResource: cores(2000) }));
  nodes.send(si.NodeRequest.fromPartial({ rmID, nodes: created }));
  for (let wanted = 2; wanted > 0; ) {
    const answer = await nodes.receive();
    for (const { reason } of answer.rejected) throw new Refused(reason);
    for (const { nodeID } of answer.accepted) console.log(`${nodeID} accepted`);
    wanted -= answer.accepted.length;
  }
  const ugi = { user: "ada" };
  const added = [
    { applicationID: "nightly", queueName: "root.batch", ugi },
    { applicationID: "shop", queueName: "root.web", ugi },
  ];
  applications.send(si.ApplicationRequest.fromPartial({ rmID, new: added }));
  for (let wanted = 2; wanted > 0; ) {
    const answer = await applications.receive();
    for (const { reason } of answer.rejected) throw new Refused(reason);
    for (const { applicationID } of answer.accepted) console.log(`${applicationID} accepted`);
    wanted -= answer.accepted.length;
  }

  // Three pods of queue `batch` fill both nodes.
  const asks = [ask("batch-1", "nightly", 2000), ask("batch-2", "nightly", 1000), ask("batch-3", "nightly", 1000)];
  allocations.send(si.AllocationRequest.fromPartial({ rmID, allocations: asks }));
  await follow(allocations, "batch-3");
  // Queue `web` is guaranteed one core: after its delay, a pod of `batch` must end for this ask.
  allocations.send(si.AllocationRequest.fromPartial({ rmID, allocations: [ask("web-1", "shop", 1000)] }));
  await follow(allocations, "web-1");
  console.log("press Enter to leave");
  stdin.resume();
  await Promise.race([once(stdin, "data"), once(stdin, "end")]);

  // Whatever still runs of an application ends with it.
  const removed = added.map(({ applicationID }) => ({ applicationID }));
  applications.send(si.ApplicationRequest.fromPartial({ rmID, remove: removed }));
  await applications.close();
  const gone = names.map((nodeID) => ({ nodeID, action: DECOMISSION }));
  nodes.send(si.NodeRequest.fromPartial({ rmID, nodes: gone }));
  await nodes.close();
  await allocations.close();
  console.log("left");
}

try {
  await run(new si.SchedulerClient(argv[2] ?? "127.0.0.1:50051", credentials.createInsecure()));
  exit(0);
} catch (error) {
  console.error(`refused: ${(error as Partial<ServiceError>).details ?? (error as Error).message}`);
  exit(1);
}
