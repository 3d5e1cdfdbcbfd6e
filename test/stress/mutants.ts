import { command } from "../harness/commands/commands.ts";
import { tenantMutants } from "../harness/mutants/tenants.ts";
import { Workshop } from "../harness/mutants/workshop.ts";

export const trial = command({
  about:
    "Leaves the tenant out of each key and query that contains one, in a copy of the project, and runs the tests that have to notice it.",
  options: {
    only: { about: "Texts, one of which is in the name of a mutant that is tried.", default: [""] },
    from: { about: "The number of the first mutant that is tried.", default: 1 },
    count: { about: "How many are tried, at most.", default: tenantMutants.length },
  },
  async run({ only, from, count }, report) {
    const workshop = new Workshop();
    let tried = 0;
    try {
      for (const [index, one] of tenantMutants.entries()) {
        if (index + 1 < from || tried >= count || !only.some((text) => one.name.includes(text))) continue;
        const outcome = await workshop.outcomeOf(one);
        tried += 1;
        report.say(`${index + 1}/${tenantMutants.length} ${outcome}: ${one.name}`);
        if (outcome === "survived") report.wrong(`survived: ${one.name}`, { only: [""], from: index + 1, count: 1 });
      }
    } finally {
      workshop.remove();
    }
    return `${tried} mutants`;
  },
});
